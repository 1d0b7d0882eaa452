"""Row-parallel decoding: a row starts once the one above is `window` tokens ahead, and a pass picks a token in every
row under way (ZipAR, 2412.04062); each may draft a Jacobi window of its own (PJD, 2606.05703). PJD judges guesses by
SJD's coin, here they stand if the noise picks them. Lossy: tokens are picked without all that precede them."""

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lantern.decoding import check_request
from lantern.errors import LanternError
from lantern.memory import check_memory
from lantern.noise import GreedyNoise, Noise, Purpose, winners
from lantern.sampling import Sampling
from lantern.types import AcceptanceRule, Drafter, Generation, Round, Target, Verification


class Read(NamedTuple):
    """A token that a pass reads."""

    cell: int
    token: int
    row: int  # whose next tokens it is read for; -1: for the rows below alone
    is_known: bool  # committed, at its own cell: the rows below see it


class RowParallel:
    """A loop of its own in the place of decoding.generate, on the same target, sampling and noise. An image's tokens
    depend on weights, prompt, seed and settings alone. With a window of a whole row they are plain decoding's."""

    def __init__(self, window: int, length: int = 0) -> None:
        """window: tokens that the row above is ahead; length: of each row's Jacobi window, in guesses."""
        if length < 0:
            raise LanternError(f"loop.length={length}: a row guesses 0 tokens ahead at least")
        self.window, self.length = window, length

    def describe(self) -> dict[str, object]:
        """The keys of a result row that this loop answers for."""
        tree = f"window{self.window}" + (f"_length{self.length}" if self.length else "")
        return {"drafter": "rows", "tree": tree, "verification": "none", "acceptance": "rows"}

    @torch.inference_mode()
    def __call__(
        self, target: Target, drafter: Drafter, verification: Verification, rule: AcceptanceRule, sampling: Sampling,
        prompts: Sequence[str], seeds: Sequence[int], batch_size: int = 1,
    ) -> Generation:  # fmt: skip
        """See decoding.generate; drafter, verification and rule are not used."""
        if not hasattr(target, "read_cells"):
            raise LanternError(f"{type(target).__name__} reads tokens in raster order alone; leave +loop=rows out")
        check_request(prompts, seeds, batch_size)
        height, width = target.grid
        if not 1 <= self.window <= width:
            raise LanternError(f"loop.window={self.window}: a row starts 1 to {width} tokens behind the one above")
        rows = min(height, width * (1 + self.length) // self.window + 1)  # under way at once, at most
        check_memory(target, rows * (1 + self.length), 0, min(batch_size, len(prompts)))
        started, images, rounds = perf_counter(), [], []
        for start in range(0, len(prompts), batch_size):
            chunk = slice(start, start + batch_size)
            images += self._decode(target, sampling, prompts[chunk], seeds[chunk], rounds)
        tokens = torch.tensor([image.tokens for image in images], device=target.codebook.device)
        steps = torch.tensor([image.steps for image in images])
        return Generation(tokens, rounds, steps, perf_counter() - started, 0)

    def _decode(
        self, target: Target, sampling: Sampling, prompts: Sequence[str], seeds: Sequence[int], rounds: list[Round]
    ) -> list["Image"]:
        """Images side by side; those that are complete leave."""
        device, everyone = target.codebook.device, torch.arange(len(prompts), device=target.codebook.device)
        noise = (GreedyNoise if sampling.is_greedy else Noise)(len(prompts), target.vocab_size, 0, device)
        noise.admit(everyone, torch.tensor(seeds, device=device))
        target.allocate(len(prompts), 1)

        def pick(laws: Tensor, cells: Tensor) -> list[list[int]]:
            return winners(laws, noise.weights(Purpose.PICK, cells)).tolist()  # plain decoding's at these cells

        law = sampling.law(target.prefill(prompts, everyone).logits)
        first = pick(law, torch.zeros_like(everyone)[:, None])
        images = [Image(target.grid, self.window, self.length, token) for (token,) in first]
        alive = list(range(len(images)))
        while alive:
            start = perf_counter()
            active = [images[number] for number in alive]
            tokens, cells, sees, sources, goals = (part.to(device) for part in turn(active))
            logits = target.read_cells(tokens, cells, sees).logits
            verified = perf_counter()
            laws = sampling.law(logits)
            picks = pick(laws.gather(1, sources[..., None].expand(-1, -1, laws.shape[-1])), goals)
            paths = [list(range(image.take(own))) for image, own in zip(active, picks, strict=True)]
            ms = 1e3 * (verified - start), 1e3 * (perf_counter() - verified)
            rounds.append(Round(paths, tokens.shape[1], 0.0, *ms, tuple(alive)))
            left = [place for place, image in enumerate(active) if not image.is_complete]
            if len(left) < len(alive):
                alive = [alive[place] for place in left]
                for part in (target, noise):
                    part.keep(torch.tensor(left, dtype=torch.long, device=device))
        return images


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
        return self.done[-1] == self.width

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
