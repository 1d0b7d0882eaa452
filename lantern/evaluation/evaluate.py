"""From prompts and seeds to result rows: times a pipeline against plain AR decoding, and judges the images of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from lantern.data.image_sets import Images
from lantern.data.prompts import Batch
from lantern.evaluation import speed
from lantern.evaluation.progress import EvaluationBar
from lantern.evaluation.request import Request
from lantern.evaluation.rows import WARNING_BREAK, Row, RowIdentity, fixed_part, is_baseline
from lantern.evaluation.run_folder import EvaluationFolder
from lantern.evaluation.sides import Made, Side, images_of, time_in_turn
from lantern.metrics.intervals import total_ratio
from lantern.metrics.metric import LawMeasure, Metric, scored
from lantern.metrics.profile import Profile, RunningProfile
from lantern.pipeline import Pipeline
from lantern.runtime.progress_line import ProgressLine


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
    bar: EvaluationBar = field(default_factory=lambda: EvaluationBar(0))

    def sides(self, pipeline: Pipeline) -> list[Side]:
        """Plain AR decoding, then the pipeline; the pipeline alone if it is AR, or if nothing is measured. Behind them
        what is only timed: plain decoding with torch.compile."""
        request = self.request
        is_alone = is_baseline(pipeline.describe()) or not request.measures
        decoders = [pipeline] if is_alone else [pipeline.baseline(), pipeline]
        times_compiled = request.compiled_baseline and request.num_timed and not pipeline.target.compiles
        decoders += [pipeline.compiled_baseline()] if times_compiled else []
        return [Side(one, pipeline, request, self.run_folder, self.identity, self.bar) for one in decoders]

    def run(self, pipeline: Pipeline) -> list[Measurement]:
        """Measures the sides that have images. A shard measures nothing and returns an empty list."""
        request, sides = self.request, self.sides(pipeline)
        shown, compiled = ([side for side in sides if (side.name == "compiled") is only] for only in (False, True))
        own, own_timed = request.share(request.batch), request.share(request.timed)
        made = "images" if request.makes_batches else "speed"
        self.bar.begin()
        for side in shown:
            self.bar.expect(("images", side.name), len(own.prompts) * request.makes_batches)
            self.bar.expect(("judging", side.name), float(not request.is_sharded))
        laws = None if len(shown) == 1 or request.is_sharded else self.laws
        for kind, (units, images) in laws.foreseen(pipeline).items() if laws else ():
            self.bar.expect(("law", kind), units, (images, (made, kind) if kind in ("plain", "method") else None))
        if request.is_sharded:
            time_in_turn(sides, own_timed, request.max_retimed)
            for side in shown if request.makes_batches else ():
                for _ in side.make(own):
                    pass
            return []

        for metric in self.metrics.values():
            metric.prepare(request.batch.prompts)
        timed = time_in_turn(sides, request.timed, request.max_retimed)[: len(shown)]
        measured: list[Measurement] = []
        for side, fresh in zip(shown, timed, strict=True):
            plain_images = measured[0].images if measured else None
            measured.append(self._measure(side, shown[0], compiled, fresh, plain_images))
        return measured

    def _measure(
        self, side: Side, plain: Side, compiled: Sequence[Side], timed: Sequence[Made],
        plain_images: Images | None,
    ) -> Measurement:  # fmt: skip
        """timed: what this process has timed."""
        request, batch, pipeline = self.request, self.request.batch, side.pipeline
        # the timed images are among the judged ones: counted once
        profile, counted = RunningProfile(pipeline), set[int]()
        for made in chain(side.make(batch) if request.makes_batches else (), timed):
            if not counted.issuperset(made.seeds):
                profile.add(made.prompts, made.generation)
            counted.update(made.seeds)
        lines = side.lines("speed", request.timed) if request.num_timed else []
        batched = side.lines("images", batch) if request.makes_batches else []
        tokens = side.tokens(batched or lines)
        images = images_of(pipeline.target, tokens)

        values: Row = {"tokens_per_step": speed.tokens_per_step(batched or lines, tokens.shape[1])}
        values |= speed.costs(lines or batched, pipeline.target.codebook.device)
        if lines:
            values |= speed.speed(lines, plain.lines("speed", request.timed))
        for other in compiled:
            compiled_s = [line["latency_s"] for line in other.lines("speed", request.timed)]
            values |= total_ratio(compiled_s, [line["latency_s"] for line in lines]).keys("speedup_over_compiled")
        if self.laws and side is not plain:
            read = Batch.cycle(request.prompts, getattr(self.laws, "num_images", len(batch.prompts)), request.seed)
            unheard, ProgressLine.done = ProgressLine.done, lambda kind, units: self.bar.add(("law", kind), units)
            try:
                values |= self.laws.measure(pipeline, read.prompts, read.seeds, request.images_at_once)
            finally:
                ProgressLine.done = unheard
        values["cuda_graphs"] = pipeline.target.passes.cuda_graphs
        if self.metrics:
            self.bar.tell(", judging")
        figures, protocols, warnings = scored(self.metrics, lambda _: images, batch.prompts, plain_images)
        values |= figures | protocols
        warnings = speed.speed_warnings(values) + warnings
        values["law"] = pipeline.guarantee.reason
        warnings += [pipeline.guarantee.reason] if pipeline.guarantee.is_open else []
        values["warnings"] = WARNING_BREAK.join(warnings) or None
        values = side.row_keys | values | dict(side.notes)
        row, profiled = fixed_part(values) | values, profile.profile()
        self.bar.add(("judging", side.name))
        return Measurement(row, lines + batched, batch, images, side.folder, profiled, request.measures)
