"""From prompts and seeds to result rows: times a pipeline against plain AR decoding, and judges the images of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from lantern.errors import LanternError
from lantern.metrics.acceptance import round_costs, tokens_per_step
from lantern.metrics.profile import Profile, profile_of
from lantern.metrics.speed import Decode, interleave, over_floor, speedup
from lantern.models.checkpoints import WEIGHTS_FILE, load_weights, save_weights
from lantern.prompts import Batch
from lantern.results import Row, complete_row, setting_id
from lantern.tracking import run_name
from lantern.types import Generation, Target


class Pipeline(Protocol):
    """A target with everything it takes to decode on it."""

    target: Target

    def generate(self, prompts: Sequence[str], seeds: Sequence[int], batch_size: int) -> Generation: ...
    def baseline(self) -> "Pipeline": ...  # plain AR decoding on the same target
    def entropies(self, prompts: Sequence[str], tokens: Tensor) -> Tensor: ...  # bits [B, L] of p, image by image
    def describe(self) -> Mapping[str, object]: ...  # the setting's keys of a result row


class Metric(Protocol):
    """Judges images by the prompts they were made for."""

    def prepare(self, prompts: Sequence[str]) -> None: ...  # raises for what it cannot judge, before any decoding
    def __call__(self, images: Tensor, prompts: Sequence[str]) -> Mapping[str, float]: ...  # [N, 3, H, W] in [0, 1]


@dataclass(frozen=True)
class Measurement:
    """What was found for one setting. `records` holds a line an image and part."""

    row: Row
    records: list[Row]
    batch: Batch
    images: Tensor  # [N, 3, H, W] in [0, 1], those of batch
    folder: Path  # where the images belong
    profile: Profile | None  # where the speed comes from; None where nothing was decoded
    is_measured: bool  # false where images were made and neither timed nor judged


@dataclass(frozen=True)
class Evaluation:
    """`num_timed` images are made one by one, `num_images` in batches; with both 0 only the prompts' images are made.
    AR images are kept in `baseline_folder` under a hash of what determines them, for the other points of a sweep."""

    prompts: Sequence[str]
    seed: int
    num_timed: int
    num_images: int
    batch_size: int
    metrics: Mapping[str, Metric]
    folder: Path
    baseline_folder: Path

    def __post_init__(self) -> None:
        sizes = {"speed.num_prompts": self.num_timed, "quality.num_images": self.num_images}
        for name, size in sizes.items():
            if size < 0:
                raise LanternError(f"{name}={size} is negative; use 0 to switch the part off")
        if self.batch_size < 1:
            raise LanternError(f"batch_size={self.batch_size} makes no images; use 1 at least")

    def run(self, pipeline: Pipeline) -> list[Measurement]:
        """Measures plain AR decoding, then the pipeline; the pipeline alone if it is AR, or if nothing is measured."""
        if self.num_images:
            for metric in self.metrics.values():
                metric.prepare(self.batch.prompts)
        if _is_ar(pipeline) or not self._measures:
            (timed,) = self._time([pipeline])
            return [self._measure(pipeline, timed, timed)]
        baseline = pipeline.baseline()
        ar, timed = self._time([baseline, pipeline])
        return [self._measure(baseline, ar, ar, self._kept_folder(baseline)), self._measure(pipeline, timed, ar)]

    @property
    def _measures(self) -> bool:
        return self.num_timed > 0 or self.num_images > 0

    @property
    def batch(self) -> Batch:
        """The images that are judged, or else shown."""
        return Batch.cycle(self.prompts, self.num_images or self.num_timed or len(self.prompts), self.seed)

    @property
    def _timed_batch(self) -> Batch:
        return Batch.cycle(self.prompts, self.num_timed, self.seed)

    def _time(self, pipelines: Sequence[Pipeline]) -> list[list[Generation]]:
        if not self.num_timed:
            return [[] for _ in pipelines]
        return interleave([_one_by_one(p) for p in pipelines], self._timed_batch.prompts, self._timed_batch.seeds)

    def _measure(
        self, pipeline: Pipeline, timed: list[Generation], ar: list[Generation], kept: Path | None = None
    ) -> Measurement:
        batch = self.batch
        batched = [self._generate(pipeline, batch, kept)] if self.num_images or not self.num_timed else []
        generations = [*timed, *batched]
        tokens = torch.cat([g.tokens for g in batched or timed])
        images = decode_images(pipeline.target, tokens, self.batch_size)
        values = {"tokens_per_step": tokens_per_step(generations), **round_costs(timed or batched)}
        values |= _speed(pipeline.target, timed, ar) if timed else {}
        values |= self._judge(images, batch) if self.num_images else {}
        row = complete_row({**pipeline.describe(), "seed": self.seed, "num_images": len(images), **values})
        records = _records(row, "speed", self._timed_batch, timed) + _records(row, "images", batch, batched)
        prompts = [*self._timed_batch.prompts, *batch.prompts] if timed else batch.prompts
        profile = profile_of(pipeline, prompts, generations)
        return Measurement(row, records, batch, images, kept or self.folder / "images", profile, self._measures)

    def _kept_folder(self, baseline: Pipeline) -> Path:
        target = baseline.target
        weights = (target.weights_hash, str(target.embed_weight.dtype))
        known = [baseline.describe(), *weights, self.batch_size, self.batch, code_hash()]
        return self.baseline_folder / sha256(repr(known).encode()).hexdigest()[:16]

    def _generate(self, pipeline: Pipeline, batch: Batch, kept: Path | None) -> Generation:
        if kept is None:
            return pipeline.generate(batch.prompts, batch.seeds, self.batch_size)
        if not (kept / WEIGHTS_FILE).is_file():
            made = pipeline.generate(batch.prompts, batch.seeds, self.batch_size)
            save_weights(kept, {"tokens": made.tokens}, {**pipeline.describe(), **batch._asdict()})
        tokens = load_weights(kept)[0]["tokens"]
        return Generation(tokens, [], torch.full((len(tokens),), tokens.shape[1] - 1), 0.0, 0)

    def _judge(self, images: Tensor, batch: Batch) -> dict[str, float]:
        return {key: value for metric in self.metrics.values() for key, value in metric(images, batch.prompts).items()}


def decode_images(target: Target, tokens: Tensor, batch_size: int) -> Tensor:
    """tokens [N, L] -> images [N, 3, H, W] in [0, 1], float32, on the CPU."""
    return torch.cat([target.decode(chunk).float().cpu() for chunk in tokens.split(batch_size)])


def _is_ar(pipeline: Pipeline) -> bool:
    return pipeline.describe()["drafter"] == "none"


def _one_by_one(pipeline: Pipeline) -> Decode:
    return lambda prompt, seed: pipeline.generate([prompt], [seed], 1)


def _speed(target: Target, timed: list[Generation], ar: list[Generation]) -> Row:
    latencies, ar_latencies = ([g.latency_s for g in generations] for generations in (timed, ar))
    ratio, low, high = speedup(latencies, ar_latencies)
    return {
        "latency_s": sum(latencies) / len(latencies),
        "baseline_latency_s": sum(ar_latencies) / len(ar_latencies),
        "speedup": ratio, "speedup_low": low, "speedup_high": high,
        "ar_over_floor": over_floor(target, ar),
    }  # fmt: skip


def _records(row: Row, part: str, batch: Batch, generations: Sequence[Generation]) -> list[Row]:
    """A line an image: who made it, its tokens' hash, its steps, and its latency where it was made alone."""
    method = {"setting": setting_id(row), "method": run_name(row), "part": part}
    tokens = [image for g in generations for image in g.tokens]
    steps = [int(count) for g in generations for count in g.steps]
    latencies = [g.latency_s for g in generations] if part == "speed" else [None] * len(tokens)
    made = zip(*batch, tokens, steps, latencies, strict=True) if tokens else ()
    return [
        method
        | {
            "prompt": prompt,
            "copy": copy,
            "seed": seed,
            "tokens": token_hash(image),
            "steps": count,
            "latency_s": latency,
        }
        for prompt, copy, seed, image, count, latency in made
    ]


@lru_cache
def code_hash() -> str:
    """Hash of this package's source, so that no change of it goes on with what it made before."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def token_hash(tokens: Tensor) -> str:
    """Sixteen hex digits of the SHA-256 of one image's tokens [L]."""
    return sha256(tokens.cpu().long().contiguous().numpy().tobytes()).hexdigest()[:16]
