"""Latency of a method against plain AR decoding, interleaved in one process, and AR against the machine's own limit."""

import time
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from scipy.stats import t as student_t

from lantern.metrics.resampling import NORMAL_95
from lantern.types import Generation, Target

# One prompt and its image seed, or a batch of both
Decode = Callable[[str, int], Generation] | Callable[[Sequence[str], Sequence[int]], Generation]


def interleave(decoders: Sequence[Decode], prompts: Sequence[str], seeds: Sequence[int]) -> list[list[Generation]]:
    """Decodes prompt by prompt with every decoder, in an order that alternates, so that a machine that slows down or
    speeds up meanwhile does so for all. Every decoder is warmed up first. Returns the generations by decoder."""
    for decode in decoders:
        decode(prompts[0], seeds[0])
    kept: list[list[Generation]] = [[] for _ in decoders]
    for i, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
        turns = list(zip(decoders, kept, strict=True))
        for decode, generations in turns if i % 2 == 0 else reversed(turns):
            generations.append(decode(prompt, seed))
    return kept


def speedup(
    method: Sequence[float], baseline: Sequence[float], resamples: int = 4000, seed: int = 0
) -> tuple[float, float, float]:
    """How many times less time the method takes in all, from latencies by prompt, and 95 % bounds: percentiles when
    prompts are redrawn, a prompt's two latencies staying together, widened by what percentiles of a few prompts fall
    short of Student's t (Hesterberg, 1411.5279, section 4). A single prompt says nothing of the others: nan."""
    method, baseline = np.asarray(method), np.asarray(baseline)
    ratio, count = float(baseline.sum() / method.sum()), len(method)
    if count < 2:
        return ratio, float("nan"), float("nan")
    draws = np.random.default_rng(seed).integers(count, size=(resamples, count))
    bounds = np.percentile(baseline[draws].sum(1) / method[draws].sum(1), [2.5, 97.5])
    wider = student_t.ppf(0.975, count - 1) / NORMAL_95 * (count / (count - 1)) ** 0.5
    low, high = ratio * (bounds / ratio) ** wider  # in proportion: a speed-up stays above 0
    return ratio, float(low), float(high)


def step_ms(latencies: Sequence[float], rounds: Sequence[float]) -> float:
    """Milliseconds of a round, whole loop included, from seconds and rounds by prompt; a prefill counts as a round."""
    return 1000 * sum(latencies) / sum(count + 1 for count in rounds)


def over_floor(target: Target, ms: float, batch_size: int = 1) -> float:
    """A round's time over that of reading what an AR step must read."""
    return ms * copy_bandwidth(target.codebook.device) / (1000 * target.step_bytes(batch_size))


@lru_cache
def copy_bandwidth(device: torch.device, num_bytes: int = 1 << 28, repeats: int = 5) -> float:
    """Bytes a second, read plus written, of the fastest of a few large copies."""
    source = torch.ones(num_bytes, dtype=torch.uint8, device=device)
    sink = torch.empty_like(source)
    seconds = [_time_copy(source, sink) for _ in range(repeats + 1)][1:]  # the first one maps the pages
    return 2 * num_bytes / min(seconds)


def _time_copy(source: torch.Tensor, sink: torch.Tensor) -> float:
    _wait(source.device)
    start = time.perf_counter()
    sink.copy_(source)
    _wait(source.device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
