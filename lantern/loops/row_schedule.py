"""What a row-parallel pass reads and what it picks, worked out on the host: the rows of an image that are under way,
their windows, and who sees whom."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Read(NamedTuple):
    """A token that a pass reads."""

    cell: int
    token: int
    row: int  # whose next tokens it is read for; -1: for the rows below alone
    is_known: bool  # committed, at its own cell: the rows below see it


class Image:
    """One image on the host: its committed tokens, the guesses behind them in each row, and what is to be read next."""

    def __init__(self, grid: tuple[int, int], window: int, length: int, first: int) -> None:
        self.height, self.width = grid
        self.window, self.length, self.steps = window, length, 0
        self.tokens = [first] * (self.height * self.width)
        self.done = [1] + [0] * (self.height - 1)  # committed tokens of each row
        self.filled = np.zeros(len(self.tokens) + 1, dtype=bool)  # cells read as what they are; the last one is none

    @property
    def is_complete(self) -> bool:
        return min(self.done) == self.width  # a row may overtake the one above

    def plan(self) -> None:
        """Sets what is read next, and what for. A row's first token is picked behind the last one of the row above, in
        whose place its newest one stands in (ZipAR). A row's last token is read for the rows below if nothing else
        reads it."""
        self.reads: list[Read] = []
        for row, done in enumerate(self.done):
            cell = row * self.width + done - 1  # of the newest token
            if done == self.width:
                if row + 1 < self.height and self.done[row + 1] and not self.filled[cell]:
                    self.reads.append(Read(cell, self.tokens[cell], -1, True))
                continue
            above = self.done[row - 1] if row else self.width
            if not done and above < self.window:
                break
            stands_in = not done and above < self.width
            token = self.tokens[cell - self.width + above if stands_in else cell]
            self.reads.append(Read(cell, token, row, not stands_in))
            guesses = range(cell + 1, cell + 1 + min(self.length, self.width - done - 1))
            if not done:
                for guess in guesses:  # the token above
                    self.tokens[guess] = self.tokens[guess - self.width]
            self.reads += [Read(guess, self.tokens[guess], row, False) for guess in guesses]
        self.asks = [ask for number, read in enumerate(self.reads) if read.row >= 0 for ask in self._asks(number, read)]

    def _asks(self, number: int, read: Read) -> list[tuple[int, int]]:
        """(read, cell): whose law says the token of which cell. The last law of a row guesses those behind it as well,
        as far as the next window may reach."""
        end = min(read.cell + 2 + self.length, (read.row + 1) * self.width)
        return [(number, cell) for cell in range(read.cell + 1, end if self._is_last(number) else read.cell + 2)]

    def _is_last(self, number: int) -> bool:  # of its row's reads
        return number + 1 == len(self.reads) or self.reads[number + 1].row != self.reads[number].row

    def sees(self) -> np.ndarray:
        """[M, L + 1] cells that each read sees: in raster order those committed, and what is read for its own row."""
        cells = np.array([read.cell for read in self.reads])
        known = self.filled.copy()
        known[[read.cell for read in self.reads if read.is_known]] = True
        seen = known & (np.arange(len(known)) <= cells[:, None])
        rows = np.array([read.row for read in self.reads])
        reader, read = np.nonzero((rows[:, None] == rows) & (cells[:, None] >= cells))
        seen[reader, cells[read]] = True
        return seen

    def take(self, picks: Sequence[int]) -> int:
        """Commits each row's picks up to the first that differs from the guess, whose place it takes; the rest are the
        next guesses. picks: of `asks`, padded. Returns how many tokens are committed."""
        self.steps += 1
        self.filled[[read.cell for read in self.reads if read.is_known]] = True
        before, ended = sum(self.done), set()  # rows that have committed all they will
        for (number, cell), pick in zip(self.asks, picks, strict=False):
            row, guess, self.tokens[cell] = self.reads[number].row, self.tokens[cell], pick
            if row in ended:
                continue
            self.done[row] += 1
            if self._is_last(number) or guess != pick:
                ended.add(row)
            else:
                self.filled[cell] = True
        return sum(self.done) - before


def turn(images: Sequence[Image]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The next pass of images side by side: tokens [B, M] and their cells, what they see [B, M, L + 1], and of each
    pick [B, A] the read whose law it is drawn from and its cell. Rows are padded with the cell behind the last one."""
    for image in images:
        image.plan()
    nowhere = len(images[0].tokens)
    size, count = max(len(i.reads) for i in images), max(len(i.asks) for i in images)
    padding = (0, nowhere)
    reads = [[(r.token, r.cell) for r in i.reads] + [padding] * (size - len(i.reads)) for i in images]
    picks = [i.asks + [padding] * (count - len(i.asks)) for i in images]
    sees = np.zeros((len(images), size, nowhere + 1), dtype=bool)
    sees[..., nowhere] = True
    for seen, image in zip(sees, images, strict=True):
        seen[: len(image.reads)] = image.sees()
    (tokens, cells), (sources, goals) = (torch.tensor(pairs).unbind(-1) for pairs in (reads, picks))
    return tokens, cells, torch.from_numpy(sees), sources, goals
