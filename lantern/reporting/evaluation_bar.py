"""The progress of an evaluation or of all points of a sweep: points, images and time left."""

from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import TextIO

from lantern.runtime.progress_line import ProgressLine


class EvaluationBar:
    """Told of images by evaluation/timing.py, as ImageCount. The time left is that of the images that are missing, at
    the mean seconds of those timed and of those made in batches so far; what else a point takes, such as judging, is
    counted to the next image."""

    def __init__(self, points: int = 1, stream: TextIO | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._line, self._clock, self._points = ProgressLine("evaluation", stream, clock), clock, points
        self._ended = self._before = 0  # points, and their images
        self._planned, self._done = Counter(), Counter()  # images of this point by part
        self._shared = 0  # images of this point that the later ones find on record
        self._decoded, self._seconds, self._at = Counter(), Counter(), clock()  # of all points

    def expect(self, timed: int, made: int, shared: int) -> None:
        """More images of this point."""
        if not self._decoded:
            self._at = self._clock()  # loading is no part of an image
        self._planned.update(speed=timed, images=made)
        self._shared += shared

    def add(self, part: str, number: int, is_new: bool) -> None:
        """Images of "speed" or "images" that were decoded, or else found on record."""
        self._done[part] += number
        if is_new:
            now = self._clock()
            self._decoded[part] += number
            self._seconds[part] += now - self._at
            self._at = now
        if self._line.is_due:
            self._show()

    def end_point(self) -> None:
        """Ends a point, finished or not, and leaves the terminal to other lines until the next image."""
        self._before += self._done.total()
        self._ended += 1
        self._planned.clear()
        self._done.clear()
        self._shared = 0
        self.pause()

    def pause(self) -> None:
        """Leaves the terminal to other lines until the next image."""
        self._line.close()

    def left_s(self) -> float | None:
        """Seconds left; None while images of a kind are missing of which none was decoded."""
        found = max(self._done["images"], self._shared if self._ended else 0)
        missing = self._planned - Counter(speed=self._done["speed"], images=found)
        for part, number in self._later().items():
            missing[part] += number * self._points_behind()
        parts = [part for part, number in missing.items() if number]
        if any(not self._decoded[part] for part in parts):
            return None
        return sum(missing[part] * self._seconds[part] / self._decoded[part] for part in parts)

    def _later(self) -> Counter:
        return self._planned - Counter(images=self._shared)

    def _points_behind(self) -> int:
        return max(0, self._points - self._ended - 1)

    def _show(self) -> None:
        done = self._before + self._done.total()
        total = self._before + self._planned.total() + self._points_behind() * self._later().total()
        words = f"image {done} of {total}"
        if self._points > 1:
            words = f"point {self._ended + 1} of {self._points}, {words}"
        is_judging = self._done.total() >= self._planned.total()
        self._line.show(min(1.0, done / max(1, total)), words + (", judging" if is_judging else ""), self.left_s())


class _Sweep:
    """The bar of the sweep that runs in this process, in which Hydra runs its points and its callback; points in
    processes of their own, which a launcher starts, find none."""

    bar: EvaluationBar | None = None


def open_sweep(bar: EvaluationBar | None) -> None:
    """Makes it the bar of this process's sweep; None ends the sweep's."""
    if _Sweep.bar is not None:
        _Sweep.bar.pause()
    _Sweep.bar = bar


def sweep_bar() -> EvaluationBar | None:
    """The bar of this process's sweep."""
    return _Sweep.bar
