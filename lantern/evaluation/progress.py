"""The progress of an evaluation or of all points of a sweep: the stages of a point, and the time left."""

from collections import defaultdict, deque
from collections.abc import Callable
from statistics import fmean
from time import monotonic
from typing import ClassVar, TextIO

from lantern.runtime.progress_line import ProgressLine

Kind = tuple[str, str]  # a stage of a point, such as "speed", and a side: "plain", "method" or "compiled"
Like = tuple[float, Kind | None]  # this share of a unit of that kind, or of an image that plain decoding decodes alone
STARTING, ENDING = (("starting", ""), ("ending", ""))  # of a point: before its first unit and behind its last
PLAIN, OWN = (("speed", "plain"), ("speed", "method"))
SHARED: Kind = ("images", "plain")  # which later points find on record
FORESEEN: dict[Kind, Like] = {  # a unit before the first one (two cores); the others are like an image
    OWN: (0.5, None), SHARED: (0.1, PLAIN), ("images", "method"): (0.6, OWN), ("warm-up", "method"): (1.0, OWN),
    ("again", "method"): (1.0, OWN), ("judging", "plain"): (0.3, None), ("judging", "method"): (0.3, None),
}  # fmt: skip
WEIGHT = 0.05  # of what was foreseen of a unit, beside all units of this point
PACE = 4  # images of plain decoding that tell it
WORDS = {"speed": "timing image", "again": "timing again, image", "images": "image", "law": "output TV, part"}


class EvaluationBar:
    """Each stage of a point has a number of units. One takes the mean time of those done in this point; before them
    that of the last point, or of a unit that it resembles. Points not begun take the mean of those that ended, at the
    pace that plain decoding has now; before one has, what the first one takes. The share done is one of time."""

    of_process: ClassVar["EvaluationBar | None"] = None  # of its command or sweep; a launcher's points have none

    def __init__(
        self, points: int = 1, stream: TextIO | None = None, clock: Callable[[], float] = monotonic, name: str = "point"
    ) -> None:  # fmt: skip
        """points: 0 shows nothing; name: what a point is called."""
        self._name, self._words = name, "starting"
        self._line, self._clock, self._points, self._point = ProgressLine("evaluation", stream, clock), clock, points, 1
        self._since = self._last = clock()
        # units: of this point those left, and done, found on record included; of these those made, and their seconds
        self.left, self._done, self._made, self._seconds = (defaultdict[Kind, float](float) for _ in range(4))
        self._ended = list[float]()  # what each point took, by the pace
        self._plain_s, self._like = deque[float](maxlen=PACE), dict(FORESEEN)
        self._share, self._is_known = 0.0, False  # whether the time of anything is known

    def begin(self) -> None:
        """What this point does will be expected in place of what the last one did, warm-ups and timings again aside."""
        if self._is_known:
            self.add(STARTING)
        self._last = self._clock()  # the first point alone loads libraries
        self.left.update({kind: 0.0 for kind in self.left if kind[0] not in ("again", "warm-up")} | {ENDING: 1.0})

    def expect(self, kind: Kind, units: float, like: Like = (1.0, None)) -> None:
        """Units to come in this point, in place of those expected so far; like: what one takes before the first one."""
        self.left[kind] = 0.0 if kind == SHARED and self._ended else units
        self._like.setdefault(kind, like)

    def add(self, kind: Kind, units: float = 1.0, is_new: bool = True) -> None:
        """Units that were done since the last call, or else found on record."""
        self.left[kind], self._done[kind] = max(0.0, self.left[kind] - units), self._done[kind] + units
        if not is_new:
            return
        before, self._last = self._last, self._clock()
        self._made[kind], self._seconds[kind] = self._made[kind] + units, self._seconds[kind] + self._last - before
        if kind == PLAIN or (kind == SHARED and not self._done[PLAIN]):
            self._plain_s.append((self._last - before) / units / (1.0 if kind == PLAIN else FORESEEN[SHARED][0]))
        if words := WORDS.get(kind[0]):
            done, left = (sum(units[each] for each in units if each[0] == kind[0]) for units in (self._done, self.left))
            self._is_known, self._words = True, f"{words} {done:.0f} of {done + left:.0f}"
        self.tell()

    def tell(self, doing: str = "") -> None:
        """What is done with the images that are there, such as ", judging"."""
        point = f"{self._name} {self._point} of {self._points}, " if self._points > 1 else ""
        if (left_s := self.left_s()) is not None:
            whole_s = self._clock() - self._since + left_s
            self._share = max(self._share, 1 - left_s / max(1e-9, whole_s))
        if self._points:
            self._line.show(self._share, point + self._words + doing, left_s or None)

    def end_point(self) -> None:
        """Keeps what this point took, and expects the same of the next one until that says otherwise."""
        if any(self._made.values()):  # one that is all on record tells nothing of the others
            self.add(ENDING)
            self._ended.append((sum(self._seconds.values()) - self._seconds[SHARED]) / self._pace_s)
        took = {kind: self._seconds[kind] / made for kind, made in self._made.items() if made}
        self._like |= {kind: (seconds / self._pace_s, None) for kind, seconds in took.items()}
        for kind in self.left:
            self.left[kind] = 0.0 if kind == SHARED else self.left[kind] + self._done[kind]
        self.left[STARTING] = 1.0
        for units in (self._done, self._made, self._seconds):
            units.clear()
        self._last, self._point, self._words = self._clock(), self._point + 1, "starting"
        self.pause()

    def pause(self) -> None:
        """Leaves the terminal to other lines until the next image."""
        self._line.close()

    def left_s(self) -> float | None:
        """Seconds left; None before the first image was decoded."""
        if not self._is_known:
            return None
        left = {kind: units * self._unit_s(kind) for kind, units in self.left.items()}
        own_s = sum(left.values())
        whole_s = sum(self._seconds.values()) - self._seconds[SHARED] + own_s - left.get(SHARED, 0.0)
        point_s = fmean(self._ended) * self._pace_s if self._ended else whole_s
        return own_s + max(0, self._points - self._point) * point_s

    @property
    def _pace_s(self) -> float:
        """Seconds of plain decoding's last images: the machine may be busier than before, the model another."""
        return fmean(self._plain_s or [1.0])

    def _unit_s(self, kind: Kind) -> float:
        share, of = self._like.get(kind, (1.0, None))
        foreseen_s = share * (self._unit_s(of) if of else self._pace_s)
        weight = WEIGHT * (self._done[kind] + self.left.get(kind, 0.0)) or 1.0
        return (weight * foreseen_s + self._seconds[kind]) / (weight + self._made[kind])


def open_bar(bar: EvaluationBar | None) -> None:
    """Sets the bar of this process's command or sweep, and shows that it starts; None removes it."""
    if EvaluationBar.of_process is not None:
        EvaluationBar.of_process.pause()
    EvaluationBar.of_process = bar
    if bar is not None:
        bar.tell()
