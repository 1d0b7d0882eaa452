"""The progress of an evaluation or of all points of a sweep: points, images and time left."""

from collections.abc import Callable
from time import monotonic
from typing import ClassVar, TextIO

from lantern.runtime.progress_line import ProgressLine


class EvaluationBar:
    """Counts images. The time left is the number of missing images times the mean seconds per image so far. A point's
    other work, such as judging, counts toward the next image."""

    of_sweep: ClassVar["EvaluationBar | None"] = None  # of the sweep whose points run in this process

    def __init__(
        self, points: int = 1, stream: TextIO | None = None, clock: Callable[[], float] = monotonic, name: str = "point"
    ) -> None:  # fmt: skip
        """name: what a point is called."""
        self._name = name
        self._line, self._clock, self._points, self._point = ProgressLine("evaluation", stream, clock), clock, points, 1
        self._total = self._decoded = 0  # images to the end of this point, and those decoded
        self._later = 0  # images of a later point, which finds the shared ones on record
        self._seconds, self._last = 0.0, clock()

    def expect(self, images: int, shared: int) -> None:
        """More images of this point. shared: of them, those that other points reuse."""
        if not self._decoded:
            self._last = self._clock()  # loading is no part of an image
        self._total += images
        self._later += images - shared

    def add(self, number: int, is_new: bool) -> None:
        """Images that were decoded, or else found on record, which leaves fewer to decode."""
        if not is_new:
            self._total -= number
            return
        now = self._clock()
        self._decoded += number
        self._seconds += now - self._last
        self._last = now
        words = f"image {self._decoded} of {self._whole()}"
        if self._points > 1:
            words = f"{self._name} {self._point} of {self._points}, {words}"
        judging = ", judging" if self._decoded == self._total else ""
        self._line.show(self._decoded / max(1, self._whole()), words + judging, self.left_s())

    def end_point(self) -> None:
        self._total, self._later = self._decoded, 0
        self._point += 1
        self.pause()

    def pause(self) -> None:
        """Leaves the terminal to other lines until the next image."""
        self._line.close()

    def left_s(self) -> float | None:
        """Seconds left; None before the first image was decoded."""
        missing = self._whole() - self._decoded
        if not missing:
            return 0.0
        return missing * self._seconds / self._decoded if self._decoded else None

    def _whole(self) -> int:
        return self._total + max(0, self._points - self._point) * self._later


def open_sweep(bar: EvaluationBar | None) -> None:
    """Sets the bar of this process's sweep; None removes it."""
    if EvaluationBar.of_sweep is not None:
        EvaluationBar.of_sweep.pause()
    EvaluationBar.of_sweep = bar


def sweep_bar() -> EvaluationBar | None:
    """The bar of this process's sweep; points in processes of their own, which a launcher starts, find none."""
    return EvaluationBar.of_sweep
