"""One prompt decoded by two methods, one after the other, as the events that the page draws."""

import base64
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

import torch
from torch import Tensor

from lantern.api import Model
from lantern.errors import FirstWarning
from lantern.noise import image_seed
from lantern.runtime.cores import CpuContention
from lantern.streaming import Progress, stream
from lantern.types import Target, abilities_of, reader_of

Event = dict[str, object]
WARM_UP = 4  # values: the prefill and three rounds

METHODS = {  # that the page offers: labels, which fit a select on a telephone, and notes
    "plain": ("Plain decoding", "one token a step, the reference"),
    "corrected_jacobi": ("Corrected Jacobi", "a window of guesses that a small network corrects"),
    "refined_jacobi": ("Refined Jacobi", "a window of guesses that EAGLE's layer refines"),
    "jacobi": ("Jacobi", "a window of guesses of the target's own, no drafter"),
    "static_shared": ("EAGLE", "a fixed tree of EAGLE's drafts"),
    "eagle2_shared": ("EAGLE-2", "a tree of EAGLE's most probable drafts"),
    "refined_lantern_pp": ("Refined LANTERN++", "refined guesses, of which LANTERN++ accepts similar tokens"),
    "lantern_pp": ("LANTERN++", "EAGLE's tree of 57 nodes, similar tokens accepted, by ratio verification"),
}  # fmt: skip
NUM_EXAMPLES = 3  # prompts that the page suggests
EXAMPLES = {  # that an embedded model draws well
    "llamagen": ["a red sphere on grass", "a red ring on wood", "a yellow cone on clouds"],
    "emoji": ["blob grinning face", "noto grinning face", "twemoji letter z"],
}


@dataclass(frozen=True)
class Request:
    prompt: str
    methods: Sequence[str]  # left, right
    seed: int = 0


def parts_of(method: str) -> dict[str, str]:
    """As lantern.load(…).stream takes them."""
    return {"drafter": "none"} if method == "plain" else {"method": method}


class Comparison:
    """Runs requests on a loaded model, one at a time; pipelines are built at a method's first use."""

    def __init__(self, model: Model, name: str) -> None:
        self.model, self.name = model, name
        self._pipeline = cache(lambda method: model.pipeline(**parts_of(method)))

    @property
    def setup(self) -> dict[str, object]:
        """What the page shows of the model, and the methods that it offers."""
        target = self.model.target
        return {
            "model": self.name,
            "methods": {name: {"label": label, "note": note} for name, (label, note) in METHODS.items()},
            "grid": target.grid,
            "examples": EXAMPLES.get(self.name, self.model.prompts[:NUM_EXAMPLES]),
            "dtype": str(target.embed_weight.dtype).removeprefix("torch."),
            "words": list(reader_of(target).words),
        }

    def run(self, request: Request) -> Iterator[Event]:
        """Events of both sides, left first, then of their comparison."""
        images = []
        for side, name in enumerate(request.methods):
            images.append((yield from self._side(side, name, request)))
        different = (images[0] != images[1]).nonzero().flatten().tolist()
        yield {"event": "verdict", "total": len(images[0]), "different": different}

    def _side(self, side: int, name: str, request: Request) -> Generator[Event, None, Tensor]:
        pipeline = self._pipeline(name)
        seed, preview = image_seed(request.seed, request.prompt), Preview(self.model.target)
        records = pipeline.target.passes.has_graphs  # a GPU records passes of a whole image, at any first use
        FirstWarning.last = ""  # such as of a prompt that is cut to what the model reads
        for _ in islice(stream(pipeline, request.prompt, seed), None if records else WARM_UP):
            pass
        coupled = abilities_of(pipeline.verification).picks_by_noise  # to the noise of the seed
        told = {"lossless": pipeline.lossless, "coupled": coupled, "told": FirstWarning.last}
        yield {"event": "start", "side": side, **told}
        others = CpuContention()
        for progress in stream(pipeline, request.prompt, seed):
            is_shown = progress.is_complete or preview.is_due
            yield {"side": side, **_round(progress, preview(progress.tokens) if is_shown else None)}
        busy = others.cores_beside(pipeline.target.codebook)
        yield {"event": "complete", "side": side, "other_cores": busy}
        return progress.tokens


def _round(progress: Progress, pixels: Tensor | None) -> Event:
    """positions: where draft tokens stood, with how many."""
    positions, candidates = torch.unique(progress.positions, return_counts=True)
    shown = None
    if pixels is not None:
        height, width, _ = pixels.shape
        shown = {"width": width, "height": height, "rgb": base64.b64encode(pixels.numpy().tobytes()).decode()}
    return {
        "event": "round",
        "committed": progress.committed,
        "accepted": progress.accepted,
        "drafted": dict(zip(positions.tolist(), candidates.tolist(), strict=True)),
        "steps": progress.steps,
        "tokens_per_step": progress.tokens_per_step,
        "seconds": progress.seconds,
        "pixels": shown,
    }


SHARE = 1 / 3  # of the time between two previews, which decoding one may take


class Preview:
    """Pixels of a partly committed image, decoded only so often that this takes at most SHARE of the time."""

    def __init__(self, target: Target) -> None:
        self._target, self._cost_s, self._ended = target, 0.0, float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last call."""
        return (time.perf_counter() - self._ended) * SHARE >= self._cost_s * (1 - SHARE)

    def __call__(self, tokens: Tensor) -> Tensor:
        """tokens [L], -1 where not committed -> pixels [H, W, 3], uint8, on the CPU."""
        started = time.perf_counter()
        filled = fill_missing(tokens, self._target.grid[1])[None].to(self._target.codebook.device)
        pixels = self._target.decode(filled)[0].float().mul(255).round().byte().permute(1, 2, 0).cpu()
        self._ended = time.perf_counter()
        self._cost_s = self._ended - started
        return pixels


def fill_missing(tokens: Tensor, width: int) -> Tensor:
    """tokens [L], -1 from the first uncommitted position on -> [L] all codes. The tokenizer decodes whole grids: an
    uncommitted position repeats the token above it, in the first row the last committed one. Of the fills tried this
    changes the committed pixels the least."""
    count, filled = int((tokens >= 0).sum()), tokens.clone()
    for position in range(count, len(tokens)):
        filled[position] = filled[position - width if position >= width else count - 1]
    return filled
