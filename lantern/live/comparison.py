"""One prompt decoded by two methods, one after the other, as the events that the page draws."""

import base64
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from lantern.api import Model
from lantern.data.prompts import check_text
from lantern.errors import LanternError, is_number, is_whole
from lantern.live.methods import METHODS
from lantern.live.preview import Preview
from lantern.noise import image_seed
from lantern.pipeline import Pipeline
from lantern.progress import Progress, stream
from lantern.runtime.cores import CpuContention

Event = dict[str, object]
MOST_CHARACTERS = 1000
WARM_UP = 4  # values: the prefill and three rounds


@dataclass(frozen=True)
class Request:
    """What the form of the page sends."""

    prompt: str
    methods: tuple[str, str]
    seed: int = 0
    pace: float = 0.0  # rounds a second at most; 0: as fast as they are decoded

    @classmethod
    def of(cls, given: object) -> "Request":
        """From parsed JSON. Raises LanternError with the value that does not fit."""
        given = given if isinstance(given, Mapping) else {}
        prompt, methods = given.get("prompt"), given.get("methods")
        seed, pace = given.get("seed", 0), given.get("pace", 0)
        if not isinstance(prompt, str) or not isinstance(methods, list) or len(methods) != 2:
            raise LanternError("a request is a JSON object with a prompt and a list of two methods")
        if len(prompt) > MOST_CHARACTERS:
            raise LanternError(f"the prompt has {len(prompt):,} characters; give at most {MOST_CHARACTERS:,}")
        check_text(prompt)
        for name in methods:
            if not isinstance(name, str) or name not in METHODS:
                raise LanternError(f"unknown method {str(name)[:80]!r}; choose among {', '.join(METHODS)}")
        if not is_whole(seed) or not 0 <= seed < 2**32:
            raise LanternError(f"seed={str(seed)[:80]} is not a whole number from 0 to {2**32 - 1}")
        if not is_number(pace) or not (pace == 0 or 0.1 <= pace <= 1000):
            raise LanternError(f"pace={str(pace)[:80]} is not 0 or a number of rounds a second from 0.1 to 1000")
        return cls(prompt, (methods[0], methods[1]), seed, float(pace))


class Comparison:
    """Runs requests on a loaded model, one at a time; pipelines are built at a method's first use."""

    def __init__(self, model: Model) -> None:
        self.model, self._pipelines = model, {}

    def _pipeline(self, name: str) -> Pipeline:
        if name not in self._pipelines:
            self._pipelines[name] = self.model.pipeline(**METHODS[name].parts)
        return self._pipelines[name]

    def run(self, request: Request) -> Iterator[Event]:
        """Events of both sides, left first, then of their comparison. Raises LanternError for what does not fit."""
        images = []
        for side, name in enumerate(request.methods):
            images.append((yield from self._side(side, name, request)))
        different = (images[0] != images[1]).nonzero().flatten().tolist()
        yield {"event": "verdict", "total": len(images[0]), "different": different}

    def _side(self, side: int, name: str, request: Request) -> Generator[Event, None, Tensor]:
        """Returns the image's tokens [L]."""
        pipeline = self._pipeline(name)
        seed, preview = image_seed(request.seed, request.prompt), Preview(self.model.target)
        records = pipeline.target.cuda_graphs is not None  # a GPU records passes of a whole image, at any first use
        for _ in islice(stream(pipeline, request.prompt, seed), None if records else WARM_UP):
            pass
        yield {"event": "start", "side": side, "lossless": pipeline.lossless}
        others = CpuContention()
        for progress in stream(pipeline, request.prompt, seed):
            started = time.perf_counter()
            is_shown = progress.is_complete or preview.is_due
            yield {"side": side, **_round(progress, preview(progress.tokens) if is_shown else None)}
            if request.pace:
                time.sleep(max(0.0, 1 / request.pace - (time.perf_counter() - started)))
        busy = others.cores_beside(progress.tokens)
        yield {"event": "complete", "side": side, "other_cores": busy}
        return progress.tokens


def _round(progress: Progress, pixels: Tensor | None) -> Event:
    """positions: where draft tokens stood, with how many."""
    positions, candidates = torch.unique(progress.positions, return_counts=True)
    return {
        "event": "round",
        "committed": progress.committed,
        "accepted": progress.accepted,
        "drafted": dict(zip(positions.tolist(), candidates.tolist(), strict=True)),
        "steps": progress.steps,
        "tokens_per_step": progress.tokens_per_step,
        "seconds": progress.seconds,
        "pixels": None if pixels is None else encoded(pixels),
    }


def encoded(pixels: Tensor) -> Event:
    """pixels [H, W, 3], uint8."""
    height, width, _ = pixels.shape
    return {"width": width, "height": height, "rgb": base64.b64encode(pixels.numpy().tobytes()).decode()}
