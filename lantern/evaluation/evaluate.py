"""From prompts and seeds to result rows: times a pipeline against plain AR decoding, and judges the images of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lantern.data.image_sets import Images
from lantern.data.prompts import Batch
from lantern.evaluation import speed
from lantern.evaluation.contender import Contender, Made, images_of, retime, time_in_turn
from lantern.evaluation.progress import EvaluationBar
from lantern.evaluation.request import Request
from lantern.evaluation.rows import WARNING_BREAK, Row, RowIdentity, fixed_part, is_baseline
from lantern.evaluation.run_folder import EvaluationFolder
from lantern.metrics.metric import LawMeasure, Metric
from lantern.metrics.profile import Profile, RunningProfile
from lantern.pipeline import Pipeline


@dataclass(frozen=True)
class Measurement:
    """The result of one setting. `records` holds one line per image and part."""

    row: Row
    records: list[Row]
    batch: Batch
    images: Images  # those of batch
    folder: Path  # of the images
    profile: Profile | None  # None where nothing was decoded in this process
    is_measured: bool  # false where images were made and neither timed nor judged


@dataclass(frozen=True)
class Evaluation:
    """Carries out a request. The metrics judge images, `laws` the output law of a method."""

    request: Request
    run_folder: EvaluationFolder
    identity: RowIdentity
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    laws: LawMeasure | None = None
    bar: EvaluationBar | None = None

    def run(self, pipeline: Pipeline) -> list[Measurement]:
        """Measures plain AR decoding, then the pipeline; the pipeline alone if it is AR, or if nothing is measured. A
        shard measures nothing and returns an empty list."""
        request = self.request
        is_alone = is_baseline(pipeline.describe()) or not request.measures
        decoders = [pipeline] if is_alone else [pipeline.baseline(), pipeline]
        times_compiled = request.compiled_baseline and request.num_timed and not pipeline.target.compiles
        decoders += [pipeline.compiled_baseline()] if times_compiled else []
        contenders = [Contender(one, pipeline, request, self.run_folder, self.identity, self.bar) for one in decoders]
        sides, compiled = contenders[: 1 if is_alone else 2], contenders[1 if is_alone else 2 :]
        own, own_timed = request.share(request.batch), request.share(request.timed)
        if self.bar:
            for side in contenders:
                self.bar.expect(side.kind("speed"), len(own_timed.prompts))
            for side in sides if request.makes_batches else ():
                self.bar.expect(side.kind("images"), len(own.prompts))
        if request.is_sharded:
            self._time(contenders, own_timed)
            for side in sides if request.makes_batches else ():
                for _ in side.make(own):
                    pass
            return []

        for metric in self.metrics.values():
            metric.prepare(request.batch.prompts)
        timed = self._time(contenders, request.timed)[: len(sides)]
        measured: list[Measurement] = []
        for side, fresh in zip(sides, timed, strict=True):
            plain_images = measured[0].images if measured else None
            measured.append(self._measure(side, sides[0], compiled, fresh, plain_images))
        return measured

    def _time(self, sides: Sequence[Contender], batch: Batch) -> list[list[Made]]:
        timed = time_in_turn(sides, batch)
        retime(sides, batch, self.request.max_retimed)
        return timed

    def _measure(
        self, side: Contender, plain: Contender, compiled: Sequence[Contender], timed: Sequence[Made],
        plain_images: Images | None,
    ) -> Measurement:  # fmt: skip
        """timed: what this process has timed."""
        request, batch, pipeline = self.request, self.request.batch, side.pipeline
        profile = RunningProfile(pipeline)
        for made in timed:
            profile.add(*made)
        if request.makes_batches:
            for made in side.make(batch):
                profile.add(*made)
        lines = side.lines("speed", request.timed) if request.num_timed else []
        batched = side.lines("images", batch) if request.makes_batches else []
        tokens = side.tokens(batched or lines)
        images = images_of(pipeline.target, tokens)

        # the timed images are among the judged ones: counted once
        values: Row = {"tokens_per_step": speed.tokens_per_step(batched or lines, tokens.shape[1])}
        values |= speed.costs(lines or batched, pipeline.target.codebook.device)
        if lines:
            values |= speed.speed(pipeline.target, lines, plain.lines("speed", request.timed))
        for other in compiled:
            values |= speed.over_compiled(lines, other.lines("speed", request.timed))
        if self.laws and side is not plain:
            read = Batch.cycle(request.prompts, getattr(self.laws, "num_images", len(batch.prompts)), request.seed)
            values |= self.laws.measure(pipeline, read.prompts, read.seeds, request.images_at_once)
        values["cuda_graphs"] = pipeline.target.passes.cuda_graphs
        values |= self._judge(images, plain_images)
        warnings = speed.speed_warnings(values)
        warnings += [warning for metric in self.metrics.values() for warning in metric.warnings(batch.prompts)]
        values["law"] = pipeline.guarantee.reason
        warnings += [pipeline.guarantee.reason] if pipeline.guarantee.is_open else []
        values["warnings"] = WARNING_BREAK.join(warnings) or None
        values = side.row_keys | values | dict(side.notes)
        row = fixed_part(values) | values
        return Measurement(row, lines + batched, batch, images, side.folder, profile.profile(), request.measures)

    def _judge(self, images: Images, plain: Images | None) -> Row:
        """images, and plain decoding's if they are another side's -> the figures of all metrics."""
        values: Row = {}
        prompts = self.request.batch.prompts
        for metric in self.metrics.values():
            values |= metric(images, prompts)
            if plain is not None:
                values |= metric.against(images, plain, prompts)
        for metric in self.metrics.values():
            values |= metric.protocol(prompts)
        return values
