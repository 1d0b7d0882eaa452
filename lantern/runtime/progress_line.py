"""Progress on standard error: on a terminal a bar that is redrawn, elsewhere a line every few seconds."""

import logging
import sys
from collections.abc import Callable
from threading import Event, RLock, Thread
from time import monotonic
from typing import ClassVar, TextIO
from weakref import WeakKeyDictionary

from tqdm import tqdm

REDRAW_S, LINE_S = 0.2, 7.0  # with beats and a late thread, two lines are at most ten seconds apart
BEAT_S = 1.0  # between redraws while nothing new is shown
Shown = tuple[str, float, str, float | None, str]  # a title, the share done, words, and seconds "left" of something
FORMAT = "{percentage:3.0f} % |{bar:20}| {desc}"


class ProgressLine:
    """One piece of work from its construction to close(). What is shown last is drawn again as time goes on, so that a
    long step is seen to go on. What ends within seconds writes nothing to a stream that is no terminal."""

    whole: ClassVar[Callable[[str, float, str, float | None], Shown] | None] = None  # what is shown of all in its place
    done: ClassVar[Callable[[str, float], object]] = lambda kind, units: None  # is told by work within a stage
    _shown: ClassVar[list["ProgressLine"]] = []  # those on the terminal; the last one stands there
    _due_at: ClassVar[WeakKeyDictionary[TextIO, float]] = WeakKeyDictionary()  # of pieces that follow one another

    def __init__(self, title: str, stream: TextIO | None = None, clock: Callable[[], float] = monotonic) -> None:
        self.title, self.stream, self.clock = title, stream or sys.stderr, clock
        self._is_terminal = self.stream.isatty()
        self._bar: tqdm | None = None
        self._due_at[self.stream] = 0.0 if self._is_terminal else self._due_at.get(self.stream, clock() + LINE_S)
        self._last: tuple[Shown, float] | None = None  # what is shown, and since when
        self._closed, self._lock = Event(), RLock()

    @property
    def is_due(self) -> bool:
        """Whether show() would write anything; callers collect what they show only then."""
        return self.clock() >= self._due_at[self.stream]

    def show(self, share: float, words: str, left_s: float | None) -> None:
        """share: done, in [0, 1]; left_s: seconds left, None while they are not known."""
        with self._lock:
            if self._last is None:
                self._begin()
            shown = self.title, share, words, left_s
            self._last = ProgressLine.whole(*shown) if ProgressLine.whole else (*shown, "left"), self.clock()
            if self.is_due:
                self._draw()

    def close(self) -> None:
        """Removes the bar from the terminal, so that other lines can be written; a later show() draws it again."""
        with self._lock:
            self._closed.set()
            self._last = None
            if self in ProgressLine._shown:
                ProgressLine._shown.remove(self)
            self._clear()

    def _begin(self) -> None:
        for other in ProgressLine._shown:
            other._clear()
        ProgressLine._shown.append(self)
        for handler in logging.root.handlers if self._is_terminal else ():
            handler.addFilter(_make_room)
        if self.clock is monotonic:
            self._closed = Event()
            Thread(target=self._beat, args=(self._closed,), daemon=True).start()

    def _beat(self, closed: Event) -> None:
        while not closed.wait(BEAT_S):
            with self._lock:
                is_late = self.clock() >= self._due_at[self.stream] + BEAT_S
                if is_late and not closed.is_set() and ProgressLine._shown[-1] is self:
                    self._draw()

    def _draw(self) -> None:
        (title, share, words, left_s, left), since = self._last or ((self.title, 0.0, "", None, ""), self.clock())
        now = self.clock()
        self._due_at[self.stream] = now + (REDRAW_S if self._is_terminal else LINE_S)
        passed = now - since
        if left_s is not None and left_s - passed > 0.5:  # else it would stand at 0:00
            words += f", {duration(left_s - passed)} {left}"
        elif passed >= BEAT_S:
            words += f", {duration(passed)}"
        if not self._is_terminal:
            print(f"{title}: {share:.0%}, {words}", file=self.stream, flush=True)
            return
        text = f"{title}: {words}"
        if self._bar is None:  # drawn at once
            self._bar = tqdm(desc=text, initial=share, total=1, file=self.stream, leave=False, bar_format=FORMAT)
        else:
            self._bar.n = share
            self._bar.set_description_str(text)  # redraws

    def _clear(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _make_room(record: logging.LogRecord) -> bool:
    """A filter of handlers: a line of the log begins where the bar stood, which is drawn again below it."""
    for line in ProgressLine._shown[-1:]:
        with line._lock:
            line._clear()
    return True


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any: "2:05", "1:02:05"."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
