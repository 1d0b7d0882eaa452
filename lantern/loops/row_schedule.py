"""The schedule of row-parallel decoding, on the host: which tokens the next pass of an image reads, in the image rows
under way and their windows, what each attends to, and which positions are picked from its laws."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Read(NamedTuple):
    """A token that a pass reads."""

    position: int
    token: int
    row: int  # the image row whose next tokens it predicts; -1: none, it is read for the rows below only
    is_known: bool  # committed, at its own position: the rows below attend to it


class Pass(NamedTuple):
    """The next pass over B images: M tokens each, A picks each, padded with position L."""

    tokens: Tensor  # [B, M]
    positions: Tensor  # [B, M]
    mask: Tensor  # [B, M, L + 1] positions that each token attends to
    sources: Tensor  # [B, A] the token whose law each pick is drawn from
    goals: Tensor  # [B, A] the position that each pick is for


class Image:
    """The state of one image: its committed tokens, the guesses behind them in each row, and the next pass."""

    def __init__(self, grid: tuple[int, int], window: int, length: int, first: int) -> None:
        self.height, self.width = grid
        self.window, self.length, self.steps = window, length, 0
        self.tokens = [first] * (self.height * self.width)
        self.done = [1] + [0] * (self.height - 1)  # committed tokens of each row
        self.filled = np.zeros(len(self.tokens) + 1, dtype=bool)  # positions whose committed token has been read

    @property
    def is_complete(self) -> bool:
        """Whether all rows of the grid are committed."""
        return min(self.done) == self.width  # a row may overtake the one above

    def plan(self) -> None:
        """Sets `reads` and `picks` of the next pass. A row's first token is predicted from the last token of the row
        above; while that token is unknown, the newest token of that row is read in its place (ZipAR). A row's last
        token is read for the rows below if no other pass has read it."""
        self.reads: list[Read] = []
        for row, done in enumerate(self.done):
            position = row * self.width + done - 1  # of the newest token
            if done == self.width:
                if row + 1 < self.height and self.done[row + 1] and not self.filled[position]:
                    self.reads.append(Read(position, self.tokens[position], -1, True))
                continue
            above = self.done[row - 1] if row else self.width
            if not done and above < self.window:
                break
            is_replaced = not done and above < self.width
            token = self.tokens[position - self.width + above if is_replaced else position]
            self.reads.append(Read(position, token, row, not is_replaced))
            guesses = range(position + 1, position + 1 + min(self.length, self.width - done - 1))
            if not done:
                for guess in guesses:  # the token above
                    self.tokens[guess] = self.tokens[guess - self.width]
            self.reads += [Read(guess, self.tokens[guess], row, False) for guess in guesses]
        reads = enumerate(self.reads)
        self.picks = [pick for index, read in reads if read.row >= 0 for pick in self._picks_from(index, read)]

    def _picks_from(self, index: int, read: Read) -> list[tuple[int, int]]:
        """(read, position) pairs: the positions picked from this read's law. The last law of a row also guesses the
        positions behind it, as far as the next window may reach."""
        end = min(read.position + 2 + self.length, (read.row + 1) * self.width)
        last = end if self._is_last(index) else read.position + 2
        return [(index, position) for position in range(read.position + 1, last)]

    def _is_last(self, index: int) -> bool:  # of its row's reads
        return index + 1 == len(self.reads) or self.reads[index + 1].row != self.reads[index].row

    def mask(self) -> np.ndarray:
        """[M, L + 1] positions that each read attends to: known tokens before it, and the reads of its own row."""
        positions = np.array([read.position for read in self.reads])
        known = self.filled.copy()
        known[[read.position for read in self.reads if read.is_known]] = True
        mask = known & (np.arange(len(known)) <= positions[:, None])
        rows = np.array([read.row for read in self.reads])
        reader, read = np.nonzero((rows[:, None] == rows) & (positions[:, None] >= positions))
        mask[reader, positions[read]] = True
        return mask

    def take(self, picked: Sequence[int]) -> int:
        """Commits each row's picks up to the first that differs from its guess, which it replaces; the rest are the
        next guesses. picked: the codes of `picks`, padded. Returns the number of committed tokens."""
        self.steps += 1
        self.filled[[read.position for read in self.reads if read.is_known]] = True
        before, ended = sum(self.done), set()  # rows that commit no more in this pass
        for (index, position), code in zip(self.picks, picked, strict=False):
            row, guess, self.tokens[position] = self.reads[index].row, self.tokens[position], code
            if row in ended:
                continue
            self.done[row] += 1
            if self._is_last(index) or guess != code:
                ended.add(row)
            else:
                self.filled[position] = True
        return sum(self.done) - before


def next_pass(images: Sequence[Image]) -> Pass:
    """Plans and pads the next pass of a batch of images."""
    for image in images:
        image.plan()
    end = len(images[0].tokens)  # the position of padding
    size, count = max(len(i.reads) for i in images), max(len(i.picks) for i in images)
    padding = (0, end)
    reads = [[(r.token, r.position) for r in i.reads] + [padding] * (size - len(i.reads)) for i in images]
    picks = [i.picks + [padding] * (count - len(i.picks)) for i in images]
    mask = np.zeros((len(images), size, end + 1), dtype=bool)
    mask[..., end] = True
    for part, image in zip(mask, images, strict=True):
        part[: len(image.reads)] = image.mask()
    (tokens, positions), (sources, goals) = (torch.tensor(pairs).unbind(-1) for pairs in (reads, picks))
    return Pass(tokens, positions, torch.from_numpy(mask), sources, goals)
