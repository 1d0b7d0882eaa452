"""From prompts and seeds to result rows: times a pipeline against plain AR decoding, and judges the images of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from lantern.data.prompts import Batch
from lantern.evaluation import speed
from lantern.evaluation.plan import Folders, Identity, Plan
from lantern.evaluation.retiming import retime
from lantern.evaluation.rows import WARNING_BREAK, Row, complete_row, is_baseline
from lantern.evaluation.shards import work_off
from lantern.evaluation.side import Pipeline, Side
from lantern.evaluation.timing import ImageCount, Made, Uncounted, decode_images, time_in_turn
from lantern.metrics.metric import LawMeasure, Metric
from lantern.metrics.profile import Profile, RunningProfile


@dataclass(frozen=True)
class Measurement:
    """The result of one setting. `records` holds a line an image and part."""

    row: Row
    records: list[Row]
    batch: Batch
    images: Tensor  # [N, 3, H, W] in [0, 1], those of batch
    folder: Path  # of the images
    profile: Profile | None  # None where nothing was decoded in this process
    is_measured: bool  # false where images were made and neither timed nor judged


@dataclass(frozen=True)
class Evaluation:
    """Carries out a plan. The metrics judge images, `laws` the output law of a method."""

    plan: Plan
    folders: Folders
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    laws: LawMeasure | None = None
    identity: Identity = field(default_factory=Identity)
    count: ImageCount = field(default_factory=Uncounted)

    def run(self, pipeline: Pipeline) -> list[Measurement]:
        """Measures plain AR decoding, then the pipeline; the pipeline alone if it is AR, or if nothing is measured.
        Nothing is returned by a shard, which measures nothing."""
        sides = self._sides(pipeline)
        compiled = self._compiled(pipeline)
        made = len(self.plan.batch.prompts) if self.plan.makes_batches else 0
        self.count.expect(0, made * len(sides), made * (len(sides) - 1))
        if self.plan.is_sharded:
            self.count.expect(self.plan.num_timed * len([*sides, *compiled]), 0, 0)
            work_off(self.plan, self.folders, sides, compiled)
            return []
        for metric in self._judges:
            metric.prepare(self.plan.batch.prompts)
        timed, doublings = self._time(sides, compiled)
        measured: list[Measurement] = []
        for side, fresh in zip(sides, timed, strict=True):
            plain = measured[0].images if measured else None
            ratios = self._over_compiled(side, compiled, doublings)
            measured.append(self._measure(side, sides[0], fresh, doublings, plain, ratios))
        return measured

    @property
    def _judges(self) -> Sequence[Metric]:
        return list(self.metrics.values()) if self.plan.num_images else []

    def _sides(self, pipeline: Pipeline) -> list[Side]:
        is_alone = is_baseline(pipeline.describe()) or not self.plan.measures
        decoded = [pipeline] if is_alone else [pipeline.baseline(), pipeline]
        return [Side(one, pipeline, self.plan, self.folders, self.identity, self.count) for one in decoded]

    def _compiled(self, pipeline: Pipeline) -> list[Side]:
        """Plain decoding with torch.compile, which is timed only: a list of one, or none."""
        if not (self.plan.compiled_baseline and self.plan.num_timed) or pipeline.target.compiles:
            return []
        return [Side(pipeline.compiled_baseline(), pipeline, self.plan, self.folders, self.identity, self.count)]

    def _over_compiled(self, side: Side, compiled: Sequence[Side], doublings: int) -> Row:
        batch = self.plan.timed(doublings)
        return {
            key: value
            for one in compiled
            for key, value in speed.over_compiled(side.lines("speed", batch), one.lines("speed", batch)).items()
        }

    def _time(self, sides: Sequence[Side], compiled: Sequence[Side]) -> tuple[list[list[Made]], int]:
        """What was decoded in this process, by side, and how often the number of prompts was doubled."""
        made: list[list[Made]] = [[] for _ in sides]
        doublings = 0
        while self.plan.num_timed:
            batch = self.plan.timed(doublings)
            timers = [side.timer for side in (*sides, *compiled)]
            self.count.expect(len(timers) * len(batch.prompts), 0, 0)
            fresh = time_in_turn(timers, batch)[: len(sides)]
            retime(timers, batch, self.plan.max_retimed)
            made = [before + now for before, now in zip(made, fresh, strict=True)]
            if doublings == self.plan.max_doublings:
                break
            ar, method = (side.lines("speed", batch) for side in (sides[0], sides[-1]))
            if not speed.is_wide(speed.speed(sides[0].pipeline.target, method, ar)):
                break
            doublings += 1
        return made, doublings

    def _measure(
        self, side: Side, ar: Side, fresh: list[Made], doublings: int, plain: Tensor | None, ratios: Row
    ) -> Measurement:  # fresh: what was timed in this process; plain: AR's images; ratios: over compiled AR
        plan, batch, profile = self.plan, self.plan.batch, RunningProfile(side.pipeline)
        for made in fresh:
            profile.add(*made)
        if plan.makes_batches:
            side.make(batch, lambda made: profile.add(*made))
        timed = side.lines("speed", plan.timed(doublings))
        batched = side.lines("images", batch) if plan.makes_batches else []
        tokens = side.tokens(batched or timed[: len(batch.prompts)])
        images = decode_images(side.pipeline.target, tokens)
        values: Row = {"tokens_per_step": speed.tokens_per_step(timed + batched, tokens.shape[1])}
        values |= speed.costs(timed or batched)
        if timed:
            plainly = ar.lines("speed", plan.timed(doublings))
            values |= {"doublings": doublings, **speed.speed(side.pipeline.target, timed, plainly), **ratios}
        if self.laws and side is not ar:
            values |= self.laws.measure(side.pipeline, batch.prompts, batch.seeds, plan.images_at_once)
        recorded = side.pipeline.target.passes.cuda_graphs
        values["cuda_graphs"] = recorded and side.pipeline.loop is None  # which runs passes of its own, unrecorded
        row = self._row(side, values | self._judge(images, plain))
        return Measurement(row, timed + batched, batch, images, side.images, profile.profile(), plan.measures)

    def _judge(self, images: Tensor, plain: Tensor | None) -> Row:
        values: Row = {}
        prompts = self.plan.batch.prompts
        for metric in self._judges:
            values |= metric(images, prompts)
            if plain is not None:
                values |= metric.against(images, plain, prompts)
        for metric in self._judges:
            values |= metric.protocol(prompts)
        return values

    def _row(self, side: Side, values: Row) -> Row:
        """The whole row, warnings and notes included."""
        warnings = speed.speed_warnings(values)
        warnings += [warning for metric in self._judges for warning in metric.warnings(self.plan.batch.prompts)]
        return complete_row(side.keys | values | {"warnings": WARNING_BREAK.join(warnings) or None, **side.notes})
