"""The progress of an evaluation or of all points of a sweep: points, images and time left."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from statistics import fmean
from time import monotonic
from typing import ClassVar, TextIO

from lantern.runtime.progress_line import ProgressLine

Kind = tuple[str, bool]  # part of the record, and whether it is plain decoding's beside a method
SHARED: Kind = ("images", True)  # which later points find on record
PLAIN = 4  # images of plain decoding that tell the pace
BATCHED = {SHARED: 0.1, ("images", False): 0.6}  # foreseen share of an image alone, for one of a batch (two cores)


class EvaluationBar:
    """Counts images. Those missing in this point take the mean time of their kind so far; a point not begun takes that
    of those that ended, judging included, without the shared images, at the pace that plain decoding has now."""

    of_process: ClassVar["EvaluationBar | None"] = None  # of its command or sweep; a launcher's points have none

    def __init__(
        self, points: int = 1, stream: TextIO | None = None, clock: Callable[[], float] = monotonic, name: str = "point"
    ) -> None:  # fmt: skip
        """points: 0 shows nothing; name: what a point is called."""
        self._name = name
        self._line, self._clock, self._points, self._point = ProgressLine("evaluation", stream, clock), clock, points, 1
        self._missing, self._later = Counter[Kind](), Counter[Kind]()  # images of this point, and of one not begun
        self._decoded, self._seconds, self._last = Counter[Kind](), defaultdict[Kind, float](float), clock()
        self._own_s = self._aside_s = 0.0  # of this point; the latter counts once an image of it is decoded
        self._ended, self._judged_s = list[float](), list[float]()  # of each that ended: paces; behind its last image
        self._plain_s = deque[float](maxlen=PLAIN)
        self._share = 0.0  # done

    def start(self) -> None:
        """Libraries and weights of this point are loaded, and passes warmed up."""
        self._show("starting")

    def expect(self, kind: Kind, images: int) -> None:
        """More images of this point; none where those there are timed again: the bar would run backwards."""
        if not self._decoded:
            self._last = self._clock()  # the first point alone loads libraries
        self.leave_out()
        if self._later[kind] and not self._missing[kind]:
            return
        self._missing[kind] += images
        self._later[kind] += images if kind != SHARED else 0

    def leave_out(self) -> None:
        """What has passed, such as a warm-up, is of the point and no part of an image."""
        self._aside_s += self._passed()

    def add(self, kind: Kind, number: int, is_new: bool) -> None:
        """Images that were decoded, or else found on record, which leaves fewer to decode."""
        is_again = kind[0] == "speed" and not self._missing[kind]  # which is time of the point, and no image
        self._missing[kind] -= 0 if is_again else number
        if not is_new:
            return
        seconds = self._passed()
        self._own_s += self._aside_s + (seconds if kind != SHARED else 0.0)
        self._aside_s = 0.0
        if kind == ("speed", True):
            self._plain_s.append(seconds / number)
        if not is_again:
            self._seconds[kind] += seconds
            self._decoded[kind] += number
            self._share = max(self._share, self._decoded.total() / max(1, self._whole()))
        self.tell(", timing again" if is_again else "")

    def tell(self, doing: str = "") -> None:
        """What is done with the images that are there, such as ", judging"."""
        self._show(f"image {self._decoded.total()} of {self._whole()}{doing}")

    def _show(self, words: str) -> None:
        point = f"{self._name} {self._point} of {self._points}, " if self._points > 1 else ""
        if self._points:
            self._line.show(self._share, point + words, self.left_s() or None)

    def end_point(self) -> None:
        if self._own_s:  # one that is all on record tells nothing of the others
            self._judged_s.append(self._passed())
            self._ended.append((self._own_s + self._judged_s[-1]) / self._pace_s)
        self._missing, self._later, self._own_s, self._aside_s = Counter(), Counter(), 0.0, 0.0
        self._last = self._clock()
        self._point += 1
        self.pause()

    def pause(self) -> None:
        """Leaves the terminal to other lines until the next image."""
        self._line.close()

    def left_s(self) -> float | None:
        """Seconds left; None before the first image was decoded."""
        if not self._decoded:
            return None if self._whole() else 0.0
        left = {kind: number * self._image_s(kind) for kind, number in self._missing.items()}
        foreseen_s = self._own_s + sum(left.values()) - left.get(SHARED, 0.0)
        point_s = fmean(self._ended) * self._pace_s if self._ended else foreseen_s
        is_starting = not self._own_s and not self._missing.total()
        own_s = point_s if is_starting else sum(left.values()) + fmean(self._judged_s or [0.0])
        return own_s + max(0, self._points - self._point) * point_s

    @property
    def _pace_s(self) -> float:
        """Seconds of plain decoding's last images: the machine may be busier than before, the model another."""
        return fmean(self._plain_s or [1.0])

    def _passed(self) -> float:
        """Seconds since this was last called."""
        before, self._last = self._last, self._clock()
        return self._last - before

    def _image_s(self, kind: Kind) -> float:
        """Before the first of a kind: by those that the same side has timed one by one, or by all."""
        for of, share in ((kind, 1.0), (("speed", kind[1]), BATCHED.get(kind, 1.0))):
            if self._decoded[of]:
                return share * self._seconds[of] / self._decoded[of]
        return sum(self._seconds.values()) / self._decoded.total()

    def _whole(self) -> int:
        return self._decoded.total() + self._missing.total() + max(0, self._points - self._point) * self._later.total()


def open_bar(bar: EvaluationBar | None) -> None:
    """Sets the bar of this process's command or sweep, and shows that it starts; None removes it."""
    if EvaluationBar.of_process is not None:
        EvaluationBar.of_process.pause()
    EvaluationBar.of_process = bar
    if bar is not None:
        bar.start()
