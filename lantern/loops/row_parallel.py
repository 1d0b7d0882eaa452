"""Row-parallel decoding: an image row starts once the one above is `window` tokens ahead, and a pass picks a token in
every row under way (ZipAR, 2412.04062, without its adaptive window; its LlamaGen code decodes the first row alone);
each may draft a Jacobi window of its own (PJD, 2606.05703). PJD judges guesses by SJD's coin, here a guess is accepted
if the noise picks it. Lossy: contexts lack some of the tokens before them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lantern.decoding import DecodingSetup, check_law, check_request
from lantern.errors import LanternError, check_whole
from lantern.loops.row_schedule import Image, next_pass
from lantern.models.token_axis import has_latents
from lantern.noise import GreedyNoise, Noise, Purpose, gumbel_argmax
from lantern.runtime.cores import sharing_cores
from lantern.runtime.memory import check_memory, check_nodes
from lantern.sampling import Sampling
from lantern.types import Forward, Generation, Round, Target


@runtime_checkable
class AnyOrderTarget(Target, Protocol):
    """A target that reads image tokens outside raster order."""

    def read_positions(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Forward:
        """tokens [B, M] at image positions [B, M]; mask [B, M, L + 1] of the positions each attends to, beside the
        prefix. Position L holds padding."""


class RowParallel:
    """Implements lantern.decoding.Loop. An image's tokens depend on weights, prompt, seed and settings alone; with a
    window of a whole row they are plain decoding's."""

    def __init__(self, window: int, length: int = 0) -> None:
        """window: tokens that the row above is ahead; length: of each row's Jacobi window, in guesses."""
        check_whole("loop", window=window, length=length)
        if length < 0:
            raise LanternError(f"loop.length={length}: a row guesses 0 tokens ahead at least")
        check_nodes(length, f"loop.length={length}")
        self.window, self.length = window, length

    def describe(self) -> dict[str, object]:
        """The keys of a result row that this loop determines."""
        tree = f"window{self.window}" + (f"_length{self.length}" if self.length else "")
        return {"drafter": "rows", "tree": tree, "verification": "none", "acceptance": "rows"}

    @torch.inference_mode()
    def __call__(
        self, setup: DecodingSetup, prompts: Sequence[str], seeds: Sequence[int], batch_size: int = 1
    ) -> Generation:
        """See decoding.generate; verification is not used, drafter and rule must be plain decoding's. Raises
        LanternError for a target that reads in raster order only."""
        target, drafter, rule = setup.target, setup.drafter, setup.rule
        if drafter.num_nodes > 1 or not rule.lossless:
            raise LanternError(
                f"+loop=rows drafts and accepts by itself; leave drafter={drafter.name}, acceptance={rule.name} out"
            )
        if not isinstance(target, AnyOrderTarget):
            raise LanternError(f"{type(target).__name__} reads tokens in raster order alone; leave +loop=rows out")
        if has_latents(target):
            raise LanternError(f"{type(target).__name__} draws continuous tokens, +loop=rows picks codes; leave it out")
        if target.compiles:
            raise LanternError("+loop=rows runs uncompiled, its baseline would be compiled; leave compile=true out")
        check_request(prompts, seeds, batch_size)
        height, width = target.grid
        if not 1 <= self.window <= width:
            raise LanternError(f"loop.window={self.window}: a row starts 1 to {width} tokens behind the one above")
        rows = min(height, width * (1 + self.length) // self.window + 1)  # under way at once, at most
        check_memory(target, rows * (1 + self.length), 0, min(batch_size, len(prompts)))
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

        first = pick(_first_law(target, sampling, prompts, everyone), torch.zeros_like(everyone)[:, None])
        images = [Image(target.grid, self.window, self.length, token) for (token,) in first]
        alive = [number for number, image in enumerate(images) if not image.is_complete]
        while alive:
            active = [images[number] for number in alive]
            laws, record = _step(target, sampling, active, pick)
            rounds.append(record._replace(images=tuple(first_image + number for number in alive)))
            left = [index for index, image in enumerate(active) if not image.is_complete]
            if len(left) < len(alive):
                check_law(laws[:, 0], target)
                alive = [alive[index] for index in left]
                for part in (target, noise):
                    part.keep(torch.tensor(left, dtype=torch.long, device=device))
        return images


@sharing_cores
def _first_law(target: AnyOrderTarget, sampling: Sampling, prompts: Sequence[str], rows: Tensor) -> Tensor:
    law = sampling.law(target.prefill(prompts, rows).logits)
    check_law(law, target)
    return law


@sharing_cores
def _step(
    target: AnyOrderTarget, sampling: Sampling, images: Sequence[Image],
    pick: Callable[[Tensor, Tensor], list[list[int]]],
) -> tuple[Tensor, Round]:  # fmt: skip
    """One pass over the images, which take its picks -> the laws [B, M, V] of what was read, and the record, in which
    planning is drafting."""
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
