"""Searches the static tree that commits most tokens a second with this drafter on this device, as Sequoia (2402.12374)
does: from measured acceptance chances and costs. It is timed beside the published trees and written as a yaml."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from lantern.data.prompts import Batch
from lantern.errors import LanternError, is_whole
from lantern.evaluation.records import image_costs
from lantern.evaluation.rows import Row
from lantern.evaluation.speed import tokens_per_step
from lantern.experiments.engine import interleave, keep_rows
from lantern.metrics.intervals import total_ratio
from lantern.pipeline import PipelineFactory
from lantern.runtime.files import replace_text
from lantern.trees.static import StaticTree
from lantern.tuning.auto import config_of
from lantern.tuning.search import SHARES, best_tree, chances_by_rank
from lantern.types import Generation, TreePolicy

MOST_NODES, MOST_LEVELS = 63, 6
SIZES = ((3, 2), (6, 3), (10, 3), (16, 4), (25, 5), (40, 6), (63, 6))  # nodes, levels


@dataclass(frozen=True)
class TreeSearch:
    """Run by +experiment=tree_search; `published` by name. Chances are measured on other images than those timed.
    nodes: in place of the fastest tree, that of at most so many nodes that commits most; LanternError out of bounds."""

    published: dict[str, StaticTree]
    num_prompts: int
    nodes: int | None = None

    def __post_init__(self) -> None:
        if self.nodes is not None and not (is_whole(self.nodes) and 1 <= self.nodes <= MOST_NODES):
            raise LanternError(f"study.nodes={self.nodes}; give 1 to {MOST_NODES}, or null for the fastest tree")

    def run(self, pipeline: PipelineFactory, prompts: Sequence[str], seed: int, folder: Path) -> list[Row]:
        """Writes searched.yaml, for conf/tree, and tree_search.jsonl with a row a tree."""
        other = Batch.cycle(prompts, self.num_prompts, seed + 1)
        best = self._search(lambda tree: pipeline(tree).generate(other.prompts, other.seeds, 1))
        path = folder / "searched.yaml"
        replace_text(path, OmegaConf.to_yaml(config_of(best) | {"name": "searched"}))
        batch = Batch.cycle(prompts, self.num_prompts, seed)
        trees = {"none": None, **self.published, "searched": best}
        decoders = [pipeline(tree).generate for tree in trees.values()]
        images = [([prompt], [seed], 1) for prompt, _, seed in zip(*batch, strict=True)]
        plain, *_ = made = interleave(decoders, images)
        rows = [tree_row(name, tree, own, plain) for (name, tree), own in zip(trees.items(), made, strict=True)]
        keep_rows(folder / "tree_search.jsonl", rows)
        print(f"{path}: copy it to conf/tree to use it as tree=searched")
        return rows

    def _search(self, decode: Callable[[TreePolicy | None], Generation]) -> StaticTree:
        whole = best_tree([SHARES] * MOST_LEVELS, MOST_NODES, MOST_LEVELS)
        chances = chances_by_rank(decode(whole).rounds, whole.paths)
        if self.nodes:
            return best_tree(chances, self.nodes, MOST_LEVELS)
        decode(None)  # warms up
        return min((best_tree(chances, *size) for size in SIZES), key=lambda tree: decode(tree).latency_s)


def tree_row(name: str, tree: StaticTree | None, made: list[Generation], plain: list[Generation]) -> Row:
    """The result row of a tree, timed against plain decoding of the same images."""
    speedup = total_ratio(*([generation.latency_s for generation in part] for part in (plain, made))).keys("speedup")
    nodes = tree.num_nodes - 1 if tree else 0
    spent = [line for generation in made for line in image_costs(generation)]
    return {"tree": name, "nodes": nodes, "tokens_per_step": tokens_per_step(spent, made[0].tokens.shape[1]), **speedup}
