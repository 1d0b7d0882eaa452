"""Progress on standard error: on a terminal a bar that is redrawn, elsewhere one line a minute."""

import sys
from collections.abc import Callable
from time import monotonic
from typing import TextIO

from tqdm import tqdm

REDRAW_S, LINE_S = 0.2, 60.0
FORMAT = "{percentage:3.0f} % |{bar:20}| {desc}"


class ProgressLine:
    """One piece of work from its construction to close(). Nothing is written to a stream that is no terminal in the
    first minute."""

    def __init__(self, title: str, stream: TextIO | None = None, clock: Callable[[], float] = monotonic) -> None:
        self.title, self.stream, self.clock = title, stream or sys.stderr, clock
        self._is_terminal = self.stream.isatty()
        self._bar: tqdm | None = None
        self._due_at = clock() + (0.0 if self._is_terminal else LINE_S)

    @property
    def is_due(self) -> bool:
        """Whether show() would write anything; callers collect what they show only then."""
        return self.clock() >= self._due_at

    def show(self, share: float, words: str, left_s: float | None) -> None:
        """share: done, in [0, 1]; left_s: seconds left, None while they are not known."""
        if not self.is_due:
            return
        self._due_at = self.clock() + (REDRAW_S if self._is_terminal else LINE_S)
        left = "" if left_s is None else f", {duration(left_s)} left"
        if not self._is_terminal:
            print(f"{self.title}: {share:.0%}, {words}{left}", file=self.stream, flush=True)
            return
        text = f"{self.title}: {words}{left}"
        if self._bar is None:  # drawn at once
            self._bar = tqdm(desc=text, initial=share, total=1, file=self.stream, leave=False, bar_format=FORMAT)
        else:
            self._bar.n = share
            self._bar.set_description_str(text)  # redraws

    def close(self) -> None:
        """Removes the bar from the terminal, so that other lines can be written; a later show() draws it again."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any: "2:05", "1:02:05"."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
