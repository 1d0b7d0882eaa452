"""From prompts and seeds to result rows: times a pipeline against plain AR decoding, and judges the images of both."""

import fcntl
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from lantern.data.prompts import Batch
from lantern.errors import LanternError
from lantern.evaluation import speed as measures
from lantern.evaluation.records import RECORDS, Ledger, key_of, unpack
from lantern.evaluation.rows import Row, complete_row, run_name, setting_id
from lantern.evaluation.timing import Made, Maker, make_in_batches, recorded, shard_of, time_in_turn
from lantern.metrics.profile import Profile, profile_of
from lantern.types import Generation, Target

log = logging.getLogger(__name__)
MAX_DOUBLINGS = 2  # of the number of timed prompts; more would be looking until the result pleases


class Pipeline(Protocol):
    """A target with everything it takes to decode on it."""

    target: Target

    def generate(self, prompts: Sequence[str], seeds: Sequence[int], batch_size: int) -> Generation: ...
    def baseline(self) -> "Pipeline": ...  # plain AR decoding on the same target
    def entropies(self, prompts: Sequence[str], tokens: Tensor) -> Tensor: ...  # bits [B, L] of p, image by image
    def describe(self) -> Mapping[str, object]: ...  # the setting's keys of a result row


class Metric(Protocol):
    """Judges images [N, 3, H, W] in [0, 1] by the prompts they were made for."""

    def prepare(self, prompts: Sequence[str]) -> None: ...  # raises for what it cannot judge, before any decoding
    def __call__(self, images: Tensor, prompts: Sequence[str]) -> Mapping[str, float]: ...
    def against(self, images: Tensor, plain: Tensor, prompts: Sequence[str]) -> Mapping[str, float]: ...  # AR's images
    def protocol(self, prompts: Sequence[str]) -> Mapping[str, object]: ...  # what it measures with, for the row
    def warnings(self, prompts: Sequence[str]) -> Sequence[str]: ...


class LawMeasure(Protocol):
    """How far the output law is from the target's."""

    def measure(
        self, pipeline: Pipeline, prompts: Sequence[str], seeds: Sequence[int], batch_size: int
    ) -> Mapping[str, object]: ...


@dataclass(frozen=True)
class Measurement:
    """What was found for one setting. `records` holds a line an image and part."""

    row: Row
    records: list[Row]
    batch: Batch
    images: Tensor  # [N, 3, H, W] in [0, 1], those of batch
    folder: Path  # where the images belong
    profile: Profile | None  # where the speed comes from; None where nothing was decoded now
    is_measured: bool  # false where images were made and neither timed nor judged


def check_sizes(num_timed: int, num_images: int, batch_size: int, shards: int, shard: int, doublings: int) -> None:
    """Raises LanternError for a number that is none, or none that can be."""
    for name, size in {"speed.num_prompts": num_timed, "quality.num_images": num_images}.items():
        if not isinstance(size, int) or size < 0:
            raise LanternError(f"{name}={size} is no number of images; use 0 to switch the part off")
    if not isinstance(batch_size, int) or batch_size < 1:
        raise LanternError(f"batch_size={batch_size} makes no images; use 1 at least")
    if not (isinstance(shards, int) and isinstance(shard, int) and 0 <= shard < shards):
        raise LanternError(f"shard={shard} of shards={shards}: give 0 <= shard < shards")
    if not (isinstance(doublings, int) and 0 <= doublings <= MAX_DOUBLINGS):
        raise LanternError(f"speed.max_doublings={doublings}: give 0 … {MAX_DOUBLINGS}")


@dataclass(frozen=True)
class Evaluation:
    """`num_timed` images are made one by one, `num_images` in batches; with both 0 only the prompts' images are made.
    AR images are kept in `baseline_folder` under a hash of what determines them, for the other points of a sweep. What
    `known` records already hold is not made again."""

    prompts: Sequence[str]
    seed: int
    num_timed: int
    num_images: int
    batch_size: int
    metrics: Mapping[str, Metric]
    folder: Path
    baseline_folder: Path
    fingerprint: str = ""  # of the whole configuration of the pipeline
    known: Sequence[Path] = ()
    max_doublings: int = 0  # of num_timed, while the speed-up's bounds are wide
    laws: LawMeasure | None = None
    protocol: Mapping[str, object] = field(default_factory=dict)  # of the run, for its rows
    shards: int = 1
    shard: int = 0
    plain_fingerprint: str = ""  # of what AR decoding is built from
    settings: Mapping[str, object] = field(default_factory=dict)  # of the method, beyond what it says of itself

    def __post_init__(self) -> None:
        check_sizes(self.num_timed, self.num_images, self.batch_size, self.shards, self.shard, self.max_doublings)

    def run(self, pipeline: Pipeline) -> list[Measurement]:
        """Measures plain AR decoding, then the pipeline; the pipeline alone if it is AR, or if nothing is measured.
        A shard makes and times its images and measures nothing: a run that finds the records of all shards does."""
        parties = self._parties(pipeline)
        if self.shards > 1:
            self._time(parties)
            for party in parties if self._makes else ():
                party.make(shard_of(self.batch, self.shards, self.shard))
            return []
        if self.num_images:
            for metric in self.metrics.values():
                metric.prepare(self.batch.prompts)
        timed, doublings = self._time(parties)
        measured: list[Measurement] = []
        for party, now in zip(parties, timed, strict=True):
            plain = measured[0].images if measured else None
            measured.append(self._measure(party, parties[0], now, doublings, plain))
        return measured

    @property
    def _measures(self) -> bool:
        return self.num_timed > 0 or self.num_images > 0

    @property
    def _makes(self) -> bool:
        """Whether images are made in batches; else those are shown that were timed."""
        return self.num_images > 0 or not self.num_timed

    @property
    def batch(self) -> Batch:
        """The images that are judged, or else shown."""
        return Batch.cycle(self.prompts, self.num_images or self.num_timed or len(self.prompts), self.seed)

    def _parties(self, pipeline: Pipeline) -> list["_Party"]:
        if _is_ar(pipeline) or not self._measures:
            return [_Party(self, pipeline, pipeline)]
        return [_Party(self, pipeline.baseline(), pipeline), _Party(self, pipeline, pipeline)]

    def _time(self, parties: Sequence["_Party"]) -> tuple[list[list[Made]], int]:
        """What was decoded now, by party, and how often the number of prompts was doubled."""
        made: list[list[Made]] = [[] for _ in parties]
        doublings = 0
        while self.num_timed:
            batch = self._timed(doublings)
            fresh = time_in_turn([party.timer for party in parties], shard_of(batch, self.shards, self.shard))
            made = [before + now for before, now in zip(made, fresh, strict=True)]
            ar, method = (recorded(party.timer.ledger, "speed", batch) for party in (parties[0], parties[-1]))
            may_go_on = self.shards == 1 and doublings < self.max_doublings
            if not may_go_on or not measures.is_wide(measures.speed(parties[0].pipeline.target, method, ar)):
                break
            doublings += 1
        return made, doublings

    def _timed(self, doublings: int) -> Batch:
        return Batch.cycle(self.prompts, self.num_timed << doublings, self.seed)

    def _measure(
        self, party: "_Party", ar: "_Party", now: list[Made], doublings: int, plain: Tensor | None
    ) -> Measurement:
        batch, pipeline = self.batch, party.pipeline
        if self._makes:
            now = [*now, *party.make(batch)]
        timed = recorded(party.timer.ledger, "speed", self._timed(doublings))
        batched = recorded(party.maker.ledger, "images", batch) if self._makes else []
        lines = batched or timed[: len(batch.prompts)]
        tokens = torch.stack([unpack(line["codes"]) for line in lines])
        images = decode_images(pipeline.target, tokens, self.batch_size)
        values = {"tokens_per_step": measures.tokens_per_step(timed + batched, tokens.shape[1])}
        values |= measures.costs(timed or batched)
        if timed:
            plainly = recorded(ar.timer.ledger, "speed", self._timed(doublings))
            values |= {"doublings": doublings, **measures.speed(pipeline.target, timed, plainly)}
        if self.laws and party is not ar:
            values |= self.laws.measure(pipeline, batch.prompts, batch.seeds, self.batch_size)
        quality = self._judge(images, plain, batch) if self.num_images else {}
        row = self._row(party, values | {"num_images": len(images)}, quality)
        prompts = [prompt for made in now for prompt in made.prompts]
        profile = profile_of(pipeline, prompts, [made.generation for made in now])
        return Measurement(row, timed + batched, batch, images, party.images, profile, self._measures)

    def _judge(self, images: Tensor, plain: Tensor | None, batch: Batch) -> Row:
        values: Row = {}
        for metric in self.metrics.values():
            values |= metric(images, batch.prompts)
            if plain is not None:
                values |= metric.against(images, plain, batch.prompts)
        for metric in self.metrics.values():
            values |= metric.protocol(batch.prompts)
        return values

    def _row(self, party: "_Party", values: Row, quality: Row) -> Row:
        judged = self.metrics.values() if quality else ()
        warnings = measures.speed_warnings(values) + [
            w for metric in judged for w in metric.warnings(self.batch.prompts)
        ]
        for warning in warnings:
            log.warning("%s: %s", run_name(party.setting), warning)
        known = dict(self.protocol) | {"warnings": "; ".join(warnings) or None, "fingerprint": party.fingerprint}
        return complete_row(
            {**party.setting, "seed": self.seed, "batch_size": self.batch_size, **known, **values, **quality}
        )


class _Party:
    """One of the two sides of an evaluation: what it decodes with, where its images go, and their record."""

    def __init__(self, evaluation: Evaluation, pipeline: Pipeline, method: Pipeline) -> None:
        self.pipeline, self.batch_size = pipeline, evaluation.batch_size
        target, is_method, is_ar = pipeline.target, pipeline is method, _is_ar(pipeline)
        self.setting = {**pipeline.describe(), **({} if is_ar else evaluation.settings)}
        self.fingerprint = evaluation.plain_fingerprint if is_ar else evaluation.fingerprint
        weight = target.embed_weight
        weights = (target.weights_hash, str(weight.dtype), str(weight.device), target.compiles)
        own = (self.setting, weights, evaluation.seed, self.fingerprint)
        images, against = key_of("images", own, self.batch_size), (method.describe(), evaluation.fingerprint)
        home = evaluation.folder if is_method or evaluation.shards > 1 else evaluation.baseline_folder / images
        self.images = evaluation.folder / "images" if is_method else home
        self._locked = None if is_method or evaluation.shards > 1 else home / "lock"
        batch = evaluation.batch
        known = {"seed": evaluation.seed, "batch_size": self.batch_size, "num_images": len(batch.prompts)}
        row = {**evaluation.protocol, **self.setting, **known, "fingerprint": self.fingerprint}
        self._common = {"setting": setting_id(row), "method": run_name(row)}
        names = zip(batch.prompts, batch.copies, batch.file_names, strict=True)
        self._files = {(prompt, copy): self.images / name for prompt, copy, name in names}
        self._known, self._home, self._images_key = evaluation.known, home / RECORDS, images
        self.timer = self._maker(evaluation.folder / RECORDS, key_of("speed", own, against, torch.get_num_threads()))
        self.maker = self._maker(self._home, images)

    def _maker(self, home: Path, key: str) -> Maker:
        target = self.pipeline.target
        ledger = Ledger(home, self._known, key, self._common, self._files)
        return Maker(self.pipeline.generate, lambda made: decode_images(target, made.tokens, len(made.tokens)), ledger)

    def make(self, batch: Batch) -> list[Made]:
        """Makes what is missing; AR's images only once for the points of a sweep, also if these run side by side."""
        if self._locked is None:
            return make_in_batches(self.maker, batch, self.batch_size)
        with _lock(self._locked):
            self.maker = self._maker(self._home, self._images_key)  # another point may have made them meanwhile
            return make_in_batches(self.maker, batch, self.batch_size)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Waits for whoever holds the file; the system frees it when its holder ends, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def decode_images(target: Target, tokens: Tensor, batch_size: int) -> Tensor:
    """tokens [N, L] -> images [N, 3, H, W] in [0, 1], float32, on the CPU."""
    return torch.cat([target.decode(chunk).float().cpu() for chunk in tokens.split(batch_size)])


def _is_ar(pipeline: Pipeline) -> bool:
    return pipeline.describe()["drafter"] == "none"
