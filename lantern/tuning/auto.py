"""tree=auto: the tree or window that decodes fastest with this model, drafter, rule, device and batch size. A short
list of shapes is timed on the same images; the best one is taken only if it beats plain decoding."""

import heapq
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from lantern.data.prompts import Batch
from lantern.errors import LanternError
from lantern.evaluation.rows import encode
from lantern.evaluation.sides import alternating
from lantern.noise import image_seed
from lantern.pipeline import DrafterOverrides, Pipeline, PipelineFactory, check_skip
from lantern.runtime.files import read_object, replace_text
from lantern.runtime.memory import check_memory
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree
from lantern.types import TreePolicy, WholeImageDrafter

CHOICE = "tree.json"
SHARES = (0.5, 0.2, 0.1, 0.06, 0.04, 0.03, 0.02, 0.01)  # assumed chances by rank, at every depth
WIDTH = 8  # children of a node of a dynamic tree, at most
CHAINS = (3, 5)  # nodes
STATIC = ((4, 1), (4, 2), (7, 3), (10, 3), (16, 4), (25, 5), (50, 6))  # nodes, levels
DYNAMIC = ((4, 1), (6, 2), (10, 3), (16, 4), (32, 5), (60, 6))
WINDOWS = (2, 4, 8, 12, 16, 20, 24)  # lengths
BRANCHING = ((4, 0), (8, 0), (12, 0), (16, 0), (20, 0), (24, 0), (12, 12), (16, 4), (16, 16), (24, 6), (24, 24))
MIN_TIMED_IMAGES = 3  # by every shape near the best
MIN_TIMED_BATCHES = 2  # in alternating order
MIN_RETIMED_SHARE = 0.95  # of the best shape's speed, for a second timing
FIRST_ROUNDS = 8  # timed before whole batches are
MIN_FIRST_SPEEDUP = 0.9  # needed in them for a timed batch; below 1: first rounds underestimate it
MIN_MEASURED_SPEEDUP = 1.05  # less is plain decoding: two batches resolve no smaller gain

log = logging.getLogger(__name__)


def shapes_for(parameters: frozenset[str]) -> list[DrafterOverrides]:
    """The shapes that are timed with a drafter of these parameters."""
    if {"length", "branches"} <= parameters:
        return [{"length": length, "branches": branches} for length, branches in BRANCHING]
    trees: list[TreePolicy] = [best_tree([SHARES[:1]] * nodes, nodes, nodes) for nodes in CHAINS]
    trees += [best_tree([SHARES] * levels, nodes, levels) for nodes, levels in STATIC]
    trees += [Eagle2Tree(n, levels, min(n, WIDTH), f"auto_eagle2_{n}_{levels}") for n, levels in DYNAMIC]
    shapes: list[DrafterOverrides] = [{"tree": tree} for tree in trees] if "tree" in parameters else []
    return [*shapes, *({"length": n} for n in WINDOWS if "length" in parameters)]


@dataclass(frozen=True)
class SavedChoice:
    """The shape that tree=auto chose, stored beside a run's records. A restarted run that searched again might choose
    another shape, and the images already made would not count."""

    path: Path
    asked: str  # hash of everything that decides the choice; a run with another hash searches again

    def read(self, shapes: Sequence[DrafterOverrides]) -> list[DrafterOverrides | None]:
        """A list of the chosen one of the shapes, None for plain decoding; empty if nothing is stored."""
        kept = read_object(self.path)
        is_known = kept.get("asked") == self.asked
        return [shape for shape in (None, *shapes) if is_known and shape_label(shape) == kept.get("shape")]

    def write(self, shape: DrafterOverrides | None) -> None:
        replace_text(self.path, encode({"asked": self.asked, "shape": shape_label(shape)}) + "\n")


def shape_label(shape: DrafterOverrides | None) -> str:
    """Such as "tree auto_static_16_4", different for different shapes of shapes_for."""
    settings = shape.items() if shape else ()
    return ", ".join(f"{name} {getattr(value, 'name', value)}" for name, value in settings) or "plain decoding"


Ranks = tuple[int, ...]
Tried = tuple[DrafterOverrides | None, Pipeline]  # a shape, None for plain decoding, and its pipeline


class AutoTree:
    """A search for a tree, to be resolved before decoding starts, for batches of `batch_size` images. No dataclass:
    OmegaConf would take it for a config."""

    def __init__(self, prompts: Sequence[str], batch_size: int = 1, kept: SavedChoice | None = None) -> None:
        """prompts: of the images decoded in the search; kept: where its result is stored, for a restarted run."""
        self.prompts, self.batch_size, self.kept = prompts, batch_size, kept
        self.found: DrafterOverrides | None = None  # by resolve

    def at(self, batch_size: int, kept: SavedChoice | None = None) -> "AutoTree":
        return AutoTree(self.prompts, batch_size, kept)

    def resolve(self, pipelines: PipelineFactory) -> DrafterOverrides | None:
        """-> the fastest shape, or None."""
        known = self.kept.read(shapes_for(pipelines.drafter_parameters)) if self.kept else []
        self.found = known[0] if known else self._search(pipelines)
        if self.kept and not known:
            self.kept.write(self.found)
        return self.found

    def _search(self, pipelines: PipelineFactory) -> DrafterOverrides | None:
        plain = pipelines(None)
        best, speed = fastest([(None, plain), *self._candidates(pipelines, plain)], self._batches())
        shape, chosen = best if speed >= MIN_MEASURED_SPEEDUP else (None, plain)
        plain.target.passes.clear()  # also of a shape that could not be recorded and is not decoded with
        log.info(
            "tree=auto is %s at batch %d: the best it found is %s, %.2f times as fast as plain decoding",
            chosen.describe()["tree"], self.batch_size, best[1].describe()["tree"], speed,
        )  # fmt: skip
        return shape

    def _candidates(self, pipelines: PipelineFactory, plain: Pipeline) -> list[Tried]:
        """The shapes that fit drafter, rule, verification and memory, except those that are too slow in the first
        rounds. LanternError if the parts refuse all shapes, whatever their size."""
        found: list[Tried] = []
        part: Pipeline | None = None  # the last one that was built, whose drafter's weights the next one shares
        refusal, is_possible = None, False
        least = MIN_FIRST_SPEEDUP * self._first_speed(plain)
        for shape in shapes_for(pipelines.drafter_parameters):
            try:
                part = pipelines(shape)
                if self._fits(part) and self._first_speed(part) >= least:
                    found.append((shape, part))
                is_possible = True
            except LanternError as error:
                refusal = error
        if refusal and not is_possible:
            raise refusal
        return found

    def _fits(self, part: Pipeline) -> bool:
        try:
            check_skip(part)
            check_memory(part.target, part.drafter.num_nodes, self.batch_size)
        except LanternError:
            return False
        return True

    def _first_speed(self, pipeline: Pipeline) -> float:
        """Tokens per millisecond in the first rounds of a batch; 0 for one image, which is timed whole. LanternError if
        the verification does not judge this shape."""
        batch = Batch.cycle(self.prompts, self.batch_size, search_seed(0))
        if self.batch_size == 1:
            if not isinstance(pipeline.drafter, WholeImageDrafter):
                pipeline.first_rounds(batch.prompts, batch.seeds, 1)
            return 0.0
        if pipeline.target.passes.has_graphs:  # recorded when shapes are first met
            pipeline.first_rounds(batch.prompts, batch.seeds, FIRST_ROUNDS)
        rounds = pipeline.first_rounds(batch.prompts, batch.seeds, FIRST_ROUNDS)
        return sum(len(path) for record in rounds for path in record.paths) / sum(record.ms for record in rounds)

    def _batches(self) -> list[Batch]:
        """The batches to time, each of different prompts as far as there are enough."""
        size, prompts = self.batch_size, self.prompts
        numbers = range(max(MIN_TIMED_BATCHES, -(-MIN_TIMED_IMAGES // size)))
        starts = [number * size % len(prompts) for number in numbers]
        turned = [[*prompts[start:], *prompts[:start]] for start in starts]
        return [Batch.cycle(turned[number], size, search_seed(1 + number)) for number in numbers]


def resolve_tree(
    tree: TreePolicy | AutoTree, pipelines: PipelineFactory, given: Sequence[str] = ()
) -> TreePolicy | DrafterOverrides | None:
    """The shape that tree=auto finds, if there are any for the drafter; another tree unchanged. Settings of a tree that
    were given to a drafter which grows none, such as a window, are warned of."""
    if not isinstance(tree, AutoTree):
        if given and not isinstance(tree, Mapping) and "tree" not in pipelines.drafter_parameters:
            log.warning("%s changes nothing: this drafter grows no tree; give drafter.…", ", ".join(given))
        return tree
    if shapes_for(pipelines.drafter_parameters):
        return tree.resolve(pipelines)
    log.warning("tree=auto changes nothing: this drafter has no tree or window whose size can be searched")
    return {}


def search_seed(number: int) -> int:
    """A seed that no user gives, so that no image decoded by the search is timed afterwards."""
    return image_seed(number, "tree=auto")


def _warm_up(parts: Sequence[Pipeline], batch: Batch) -> None:
    """Decodes one image plainly and with a shape; if passes are recorded as CUDA graphs, the batch with all parts.
    Caches are first allocated for the largest tree: growing later would move them and end all recordings."""
    target, size = parts[0].target, len(batch.prompts)
    if not target.passes.has_graphs:
        for part in parts[:2]:
            part.generate(batch.prompts[:1], batch.seeds[:1], 1)
        return
    target.allocate(size, max(part.drafter.num_nodes for part in parts))
    max((part.drafter for part in parts), key=attrgetter("num_nodes")).allocate(size)
    for part in parts:
        part.generate(batch.prompts, batch.seeds, size)


def fastest(tried: Sequence[Tried], batches: Sequence[Batch]) -> tuple[Tried, float]:  # with its speed-up
    """tried: plain decoding first. All decode the same images in alternating order; later only it and the near best."""
    if len(tried) == 1:
        return tried[0], 1.0
    parts = [pipeline for _, pipeline in tried]
    _warm_up(parts, batches[0])
    seconds = dict.fromkeys(range(len(tried)), 0.0)
    for number, (prompts, _, seeds) in enumerate(batches):
        for index in alternating(number, list(seconds)):
            seconds[index] += parts[index].generate(prompts, seeds, len(prompts)).latency_s
        best = min(list(seconds)[1:], key=seconds.__getitem__)
        seconds = {i: spent for i, spent in seconds.items() if not i or spent * MIN_RETIMED_SHARE <= seconds[best]}
    return tried[best], seconds[0] / seconds[best]


def best_paths(chances: Sequence[Sequence[float]], size: int, depth: int) -> list[Ranks]:
    """chances [depth][rank] -> the tree of at most `size` draft nodes and `depth` levels that is expected to commit
    most. A node adds its chance of being reached, a product along its path. No child or later sibling exceeds it, so
    the best nodes, taken one by one, form a tree; Sequoia (2402.12374) finds the same tree by dynamic programming."""
    waiting: list[tuple[float, Ranks, float]] = [(-chances[0][0], (0,), 1.0)]  # worth, path, its parent's worth
    found: list[Ranks] = []
    while waiting and len(found) < size:
        worth, path, above = heapq.heappop(waiting)
        found.append(path)
        level, rank = len(path), path[-1] + 1
        if rank < len(chances[level - 1]):
            heapq.heappush(waiting, (-above * chances[level - 1][rank], (*path[:-1], rank), above))
        if level < min(depth, len(chances)):
            heapq.heappush(waiting, (worth * chances[level][0], (*path, 0), -worth))
    return found


def best_tree(chances: Sequence[Sequence[float]], size: int, depth: int) -> StaticTree:
    """The tree of best_paths, named by its size."""
    paths = best_paths(chances, size, depth)
    levels = max(map(len, paths))
    return StaticTree(paths, f"auto_chain_{levels}" if levels == len(paths) else f"auto_static_{len(paths)}_{levels}")
