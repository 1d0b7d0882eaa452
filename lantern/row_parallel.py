"""Row-parallel decoding: an image row starts once the one above is `window` tokens ahead, and a pass picks a token in
every row under way (ZipAR, 2412.04062, without its adaptive window; its LlamaGen code decodes the first row alone);
each may draft a Jacobi window of its own (PJD, 2606.05703). PJD judges guesses by SJD's coin, here a guess is accepted
if the noise picks it. Lossy: contexts lack some of the tokens before them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from lantern.decoding import DecodingSetup, check_request
from lantern.engine.judging import check_probabilities
from lantern.errors import LanternError, check_least, check_whole
from lantern.noise import GreedyNoise, Noise, Purpose, gumbel_argmax
from lantern.runtime.cores import sharing_cores
from lantern.runtime.memory import check_memory, check_nodes
from lantern.sampling import Sampling
from lantern.types import Forward, Generation, Round, Target, TreeLabel


@runtime_checkable
class AnyOrderTarget(Target, Protocol):
    """A target that reads image tokens outside raster order."""

    def read_positions(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Forward:
        """tokens [B, M] at positions [B, M]; mask [B, M, L + 1] of those attended to beside the prefix. L: padding."""


class Read(NamedTuple):
    """A token that a pass reads."""

    position: int
    token: int
    row: int  # the image row whose next tokens it predicts; -1: none, it is read for the rows below only
    is_known: bool  # committed, at its own position: the rows below attend to it


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
        positions, rows = (np.array([getattr(read, name) for read in self.reads]) for name in ("position", "row"))
        known = self.filled.copy()
        known[[read.position for read in self.reads if read.is_known]] = True
        mask = known & (np.arange(len(known)) <= positions[:, None])
        reader, read = np.nonzero((rows[:, None] == rows) & (positions[:, None] >= positions))
        mask[reader, positions[read]] = True
        return mask

    def take(self, picked: Sequence[int]) -> int:
        """Commits each row's picks up to and including the first that differs from its guess; later picks are the next
        guesses. picked: the codes of `picks`, padded. Returns the number of committed tokens."""
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


def next_pass(images: Sequence[Image]) -> tuple[Tensor, ...]:
    """Plans the next pass over B images, of M tokens and A picks each, padded with position L -> tokens [B, M], their
    positions [B, M], the mask [B, M, L + 1] of positions that each attends to, and of each pick [B, A] the token whose
    law it is drawn from, and its position [B, A]."""
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
    return tokens, positions, torch.from_numpy(mask), sources, goals


class RowParallel:
    """A drafter that decodes whole images by itself. An image's tokens depend on weights, prompt, seed and settings
    alone; with a window of a whole row they are plain decoding's."""

    name, weights_hash = "rows", None
    num_nodes, depth = 1, 0
    forwards, forward_s = 0, 0.0

    def __init__(self, window: int, length: int = 0) -> None:
        """window: tokens that the row above is ahead; length: of each row's Jacobi window, in guesses."""
        check_whole("drafter", 0, window=window, length=length)
        check_nodes(length, f"drafter.length={length}")
        self.window, self.length = window, length
        self.tree = TreeLabel(f"window{window}" + (f"_length{length}" if length else ""), "rows")

    def allocate(self, batch_size: int) -> None:
        """Refuses rounds of a tree, which are the only use of a drafter's cache."""
        raise LanternError("drafter=rows has no rounds of a tree to stream; choose another drafter")

    @torch.inference_mode()
    def decode(
        self, setup: DecodingSetup, prompts: Sequence[str], seeds: Sequence[int], batch_size: int = 1
    ) -> Generation:
        """As decoding.generate; refuses targets that read in raster order only, and lossy rules."""
        target, rule, verification = setup.target, setup.rule, setup.verification
        if not rule.lossless or verification.name != "shared_noise":
            raise LanternError(
                f"drafter=rows accepts by itself what the noise picks; give acceptance=exact for {rule.name}, "
                f"verification=shared_noise for {verification.name}"
            )
        if not isinstance(target, AnyOrderTarget):
            raise LanternError(f"{type(target).__name__} reads tokens in raster order alone; leave drafter=rows out")
        if target.compiles:
            raise LanternError("drafter=rows runs uncompiled, its baseline would be compiled; leave compile=true out")
        check_request(prompts, seeds, batch_size)
        height, width = target.grid
        check_least("drafter", 1, width, window=self.window)
        rows = min(height, width * (1 + self.length) // self.window + 1)  # under way at once, at most
        check_memory(target, rows * (1 + self.length), min(batch_size, len(prompts)))
        started, images = perf_counter(), list[Image]()
        rounds: list[Round] = []
        for start in range(0, len(prompts), batch_size):
            chunk = slice(start, start + batch_size)
            images += self._decode(target, setup.sampling, prompts[chunk], seeds[chunk], rounds, start)
        tokens = torch.tensor([image.tokens for image in images], device=target.codebook.device)
        steps = torch.tensor([image.steps for image in images])
        return Generation(tokens, rounds, steps, perf_counter() - started, 0)

    def _decode(
        self, target: AnyOrderTarget, sampling: Sampling, prompts: Sequence[str], seeds: Sequence[int],
        rounds: list[Round], first_image: int,
    ) -> list[Image]:  # fmt: skip
        """Decodes a batch of images; complete ones leave it, and are not replaced before all are complete."""
        device, everyone = target.codebook.device, torch.arange(len(prompts), device=target.codebook.device)
        noise = (GreedyNoise if sampling.is_greedy else Noise)(len(prompts), target.vocab_size, 0, device)
        noise.admit(everyone, torch.tensor(seeds, device=device))
        target.allocate(len(prompts), 1)

        def pick(laws: Tensor, positions: Tensor) -> list[list[int]]:
            return gumbel_argmax(laws, noise.weights(Purpose.PICK, positions)).tolist()  # the picks of plain decoding

        law = sharing_cores(lambda: sampling.law(target.prefill(prompts, everyone).logits))()
        check_probabilities(law, target)
        first = pick(law, torch.zeros_like(everyone)[:, None])
        images = [Image(target.grid, self.window, self.length, token) for (token,) in first]
        alive = [number for number, image in enumerate(images) if not image.is_complete]
        while alive:
            active = [images[number] for number in alive]
            laws, record = _step(target, sampling, active, pick)
            rounds.append(record._replace(images=tuple(first_image + number for number in alive)))
            left = [index for index, image in enumerate(active) if not image.is_complete]
            if len(left) < len(alive):
                check_probabilities(laws[:, 0], target)
                alive = [alive[index] for index in left]
                for part in (target, noise):
                    part.keep(torch.tensor(left, dtype=torch.long, device=device))
        return images


@sharing_cores
def _step(
    target: AnyOrderTarget, sampling: Sampling, images: Sequence[Image],
    pick: Callable[[Tensor, Tensor], list[list[int]]],
) -> tuple[Tensor, Round]:  # fmt: skip
    """One pass over the images, which take its picks -> the laws [B, M, V] of what was read; planning is its draft."""
    times = [perf_counter()]
    tokens, positions, mask, sources, goals = (part.to(target.codebook.device) for part in next_pass(images))
    times.append(perf_counter())
    read = sum(len(image.reads) for image in images)
    logits = target.read_positions(tokens, positions, mask).logits
    times.append(perf_counter())
    laws = sampling.law(logits)
    picks = pick(laws.gather(1, sources[..., None].expand(-1, -1, laws.shape[-1])), goals)
    paths = [list(range(image.take(own))) for image, own in zip(images, picks, strict=True)]
    times.append(perf_counter())
    draft_ms, verify_ms, accept_ms = (1e3 * (after - before) for before, after in pairwise(times))
    return laws, Round(paths, tokens.shape[1], draft_ms, verify_ms, accept_ms, tokens_read=read)
