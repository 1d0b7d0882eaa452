"""tree=auto: the tree or window that decodes fastest with this model, drafter, rule, device and batch size, as
Sequoia (2402.12374) selects trees. Two images are decoded with a few shapes; the speed of all others is estimated from
committed tokens and round costs. The best, or one close to it, is taken only if it beats plain decoding."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import median
from typing import NamedTuple, Protocol

import numpy as np

from lantern.data.prompts import Batch
from lantern.errors import DepthError, LanternError
from lantern.evaluation.contender import alternating
from lantern.noise import image_seed
from lantern.pipeline import DrafterOverrides, Pipeline, PipelineFactory, check_skip
from lantern.runtime.memory import check_drafted
from lantern.tuning.families import Dynamic, Family, Size, Static, shallower
from lantern.types import Generation, Round, TreePolicy

SAMPLE_IMAGES = 2  # decoded with each sampled shape
MIN_TIMED_IMAGES = 3  # by every candidate
MIN_TIMED_BATCHES = 2  # in alternating order
MIN_RETIMED_SHARE = 0.95  # of the best shape's speed, for a second timing
FIRST_ROUNDS = 8  # timed instead of whole images at batch sizes above 1
MIN_ESTIMATED_SPEEDUP = 0.9  # of a candidate; below 1, since first rounds underestimate it
MIN_MEASURED_SPEEDUP = 1.05  # else nothing is drafted: the resolution of two batches

log = logging.getLogger(__name__)


class SavedChoice(Protocol):
    """Where a run stores the shape that was found."""

    def read(self) -> list[DrafterOverrides | None]: ...  # empty if nothing is stored
    def write(self, shape: DrafterOverrides | None) -> None: ...


class Estimate(NamedTuple):
    """The best sizes of a family, by its estimate."""

    family: Family
    sizes: list[Size]  # the fastest, and the best of the shallowest
    speed: float  # tokens a second of the best


class AutoTree:
    """A search for a tree, to be resolved before decoding starts, for batches of `batch_size` images."""

    def __init__(
        self, families: Sequence[Family], prompts: Sequence[str], batch_size: int = 1, kept: SavedChoice | None = None
    ) -> None:
        """prompts: of the images decoded in the search; kept: where its result is stored."""
        self.families, self.prompts, self.batch_size, self.kept = families, prompts, batch_size, kept
        self.found: DrafterOverrides | None = None  # by resolve

    def at(self, batch_size: int) -> "AutoTree":
        """The same search for another batch size."""
        return AutoTree(self.families, self.prompts, batch_size)

    def keeping(self, kept: SavedChoice) -> "AutoTree":
        """The same search with its result stored, so that a restarted run decodes with the same shape."""
        return AutoTree(self.families, self.prompts, self.batch_size, kept)

    def fitting(self, parameters: frozenset[str]) -> list[Family]:
        """Of the families that set only these parameters, those that set most of them."""
        known = [family for family in self.families if family.settings <= parameters]
        most = max((len(family.settings) for family in known), default=0)
        return [family for family in known if len(family.settings) == most]

    def resolve(self, pipelines: PipelineFactory) -> DrafterOverrides | None:
        """-> the fastest shape found, or None."""
        known = self.kept.read() if self.kept else []
        self.found = known[0] if known else self._search(pipelines)
        if self.kept and not known:
            self.kept.write(self.found)
        return self.found

    def _search(self, pipelines: PipelineFactory) -> DrafterOverrides | None:
        candidates, _held = self._candidates(pipelines)  # whose drafter's weights all others share
        best, speed = fastest(pipelines, candidates, self._batches())
        chosen = best if speed >= MIN_MEASURED_SPEEDUP else None
        log.info(
            "tree=auto is %s at batch %d: the best it found is %s, %.2f times as fast as plain decoding",
            *(pipelines(chosen).describe()["tree"], self.batch_size, pipelines(best).describe()["tree"], speed),
        )
        return chosen

    def _candidates(self, pipelines: PipelineFactory) -> tuple[list[DrafterOverrides], list[Pipeline]]:
        """Also a sampled shape's pipeline, if any."""
        held: list[Pipeline] = []
        plain = self._seconds(pipelines(None), learn(pipelines(None), self.prompts))
        estimates = []
        rejection: LanternError | None = None
        for family in self.fitting(pipelines.drafter_parameters):
            try:
                family, parts = sampled_parts(family, pipelines)
                held = held or parts[:1]
                runs = [learn(part, self.prompts) for part in parts]
                costs = self._costs(family, parts, runs)
            except LanternError as error:  # a rule, a drafter or a memory that does not take such trees
                rejection = error
                continue
            estimates.append(estimated(family, [run.rounds for run in runs], costs, plain))
        if rejection and not estimates:
            raise rejection
        promising = [estimate for estimate in estimates if estimate.speed * plain >= MIN_ESTIMATED_SPEEDUP]
        shapes = [family.shape(size) for family, best, _ in promising for tree in best for size in family.near(tree)]
        return [shape for shape in shapes if self._works(pipelines, shape)], held

    def _costs(self, family: Family, parts: Sequence[Pipeline], runs: Sequence[Generation]) -> dict[Size, float]:
        """Seconds of a round of the sampled sizes that fit in memory at this batch size; LanternError if none does."""
        costs: dict[Size, float] = {}
        rejection: LanternError | None = None
        for size, part, run in zip(family.sampled, parts, runs, strict=True):
            try:
                costs[size] = self._seconds(part, run)
            except LanternError as error:
                rejection = error
        if rejection and not costs:
            raise rejection
        return costs

    def _works(self, pipelines: PipelineFactory, shape: DrafterOverrides) -> bool:
        """Whether a shape fits in memory at this batch size and leaves its rule something to judge."""
        try:
            part = pipelines(shape)
            check_skip(part)
            check_drafted(part.target, part.drafter, self.batch_size)
        except LanternError:
            return False
        return True

    def _seconds(self, pipeline: Pipeline, run: Generation) -> float:
        """Of a round at this batch size. run: decoded image by image."""
        if self.batch_size == 1:
            return seconds_of(run.rounds)
        batch = Batch.cycle(self.prompts, self.batch_size, search_seed(0))
        if pipeline.target.cuda_graphs is not None:  # passes are recorded in these rounds when they are first met
            pipeline.first_rounds(batch.prompts, batch.seeds, FIRST_ROUNDS)
        return seconds_of(pipeline.first_rounds(batch.prompts, batch.seeds, FIRST_ROUNDS))

    def _batches(self) -> list[Batch]:
        """Each of other prompts, as far as there are any."""
        size, prompts = self.batch_size, self.prompts
        numbers = range(max(MIN_TIMED_BATCHES, -(-MIN_TIMED_IMAGES // size)))
        turned = [
            [*prompts[start:], *prompts[:start]] for start in (number * size % len(prompts) for number in numbers)
        ]
        return [Batch.cycle(turned[number], size, search_seed(1 + number)) for number in numbers]


def resolved(tree: TreePolicy | AutoTree, pipelines: PipelineFactory) -> TreePolicy | DrafterOverrides | None:
    """The shape that tree=auto finds, if any of its families fits the drafter; another tree unchanged."""
    if not isinstance(tree, AutoTree):
        return tree
    return tree.resolve(pipelines) if tree.fitting(pipelines.drafter_parameters) else DrafterOverrides({})


def search_seed(number: int) -> int:
    """A seed of the search, none of those a user gives: an image that the search decodes is not timed afterwards."""
    return image_seed(number, "tree=auto")


def learn(pipeline: Pipeline, prompts: Sequence[str]) -> Generation:
    """Decodes image by image: what an image commits does not depend on the batch."""
    batch = Batch.cycle(prompts, SAMPLE_IMAGES, search_seed(0))
    return pipeline.generate(batch.prompts, batch.seeds, 1)


def sampled_parts(family: Family, pipelines: PipelineFactory) -> tuple[Family, list[Pipeline]]:
    """The family without trees that are too deep for the drafter, and its sampled shapes."""
    try:
        return family, [pipelines(family.shape(size)) for size in family.sampled]
    except DepthError as error:
        if not isinstance(family, Dynamic | Static):
            raise
        shallow = replace(family, sampled=shallower(family.sampled, error.levels))
        return shallow, [pipelines(shallow.shape(size)) for size in shallow.sampled]


def seconds_of(rounds: Sequence[Round]) -> float:
    """Median seconds of a round."""
    return median(record.ms for record in rounds) / 1e3


def estimated(
    family: Family, runs: Sequence[Sequence[Round]], costs: Mapping[Size, float], plain: float | None = None
) -> Estimate:
    """runs: the rounds of the sampled sizes; costs: seconds of a round of some; plain: of a round of plain decoding."""
    known = family.learned(runs)
    cost = round_cost(list(costs), list(costs.values()), plain)
    speeds = {size: known.tokens(size) / cost(size) for size in known.sizes()}
    best: dict[int, Size] = {}  # by levels, whose cost is the least certain
    for size in sorted(speeds, key=speeds.__getitem__, reverse=True):
        best.setdefault(size.levels, size)
    first, *others = best.values()
    others.sort(key=lambda size: size.levels)  # the shallowest one depends least on that cost
    return Estimate(known, [first, *others[:1]], speeds[first])


def round_cost(sizes: Sequence[Size], seconds: Sequence[float], plain: float | None = None) -> Callable[[Size], float]:
    """Seconds of a round by its size: a constant, a cost per node and a cost per level, fitted to the sampled sizes and
    to plain decoding, which has neither nodes nor levels."""
    known = [*zip(sizes, seconds, strict=True), *([(Size(0, 0), plain)] if plain else [])]
    parts = np.array([_parts(size) for size, _ in known], dtype=float)
    coefficients = np.linalg.lstsq(parts, np.array([time for _, time in known]), rcond=None)[0]
    least = min(seconds) / 2  # a fit to noise must not predict rounds without cost
    return lambda size: max(least, float(coefficients @ _parts(size)))


def _parts(size: Size) -> list[int]:
    return [1, size.nodes + size.window, size.levels]


def _record_passes(parts: Sequence[Pipeline], batch: Batch) -> None:
    """Where passes are recorded as CUDA graphs, decodes with all parts once, so that none is recorded while it is
    timed. Caches are allocated for the largest tree first: a larger one would move them and end all recordings."""
    target = parts[0].target
    if target.cuda_graphs is None:
        return
    target.allocate(len(batch.prompts), max(part.drafter.num_nodes for part in parts))
    max((part.drafter for part in parts), key=attrgetter("image_bytes")).allocate(len(batch.prompts))
    for part in parts:
        part.generate(batch.prompts, batch.seeds, len(batch.prompts))


def fastest(
    pipelines: PipelineFactory, shapes: Sequence[DrafterOverrides], batches: Sequence[Batch]
) -> tuple[DrafterOverrides | None, float]:  # with its speed-up over plain decoding
    """All decode the same images in alternating order, so that a machine that slows down affects all alike; from the
    second batch on only those near the best, and plain decoding."""
    if not shapes:
        return None, 1.0
    tried: list[DrafterOverrides | None] = [None, *shapes]
    parts = [pipelines(shape) for shape in tried]
    _record_passes(parts, batches[0])
    seconds = dict.fromkeys(range(len(tried)), 0.0)
    for number, (prompts, _, seeds) in enumerate(batches):
        for index in alternating(number, list(seconds)):
            seconds[index] += parts[index].generate(prompts, seeds, len(prompts)).latency_s
        best = min(list(seconds)[1:], key=seconds.__getitem__)
        seconds = {
            index: spent for index, spent in seconds.items() if not index or spent * MIN_RETIMED_SHARE <= seconds[best]
        }
    return tried[best], seconds[0] / seconds[best]
