"""Agreement of what lossless methods decode with plain decoding, by tokens: all are equal in float32, and low precision
flips a few. On a GPU with recorded passes and without."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from lantern.data.prompts import Batch
from lantern.engine.cached_target import CachedTarget
from lantern.evaluation.rows import Row
from lantern.experiments.engine import keep_rows
from lantern.pipeline import Pipeline, PipelineFactory
from lantern.types import TreePolicy


@dataclass(frozen=True)
class Agreement:
    """`trees` by name; a drafter that takes no tree decodes with its window instead."""

    trees: Mapping[str, TreePolicy]
    num_prompts: int

    def run(self, pipeline: PipelineFactory, prompts: Sequence[str], seed: int, folder: Path) -> list[Row]:
        """Writes agreement.jsonl, a row for each tree and way of running passes, and prints the rows."""
        batch = Batch.cycle(prompts, self.num_prompts, seed)
        ways = [without_graphs(pipeline)]
        if pipeline.plain.target.passes.has_graphs:
            ways.append(pipeline)
        images = batch.prompts, batch.seeds, 1  # one by one
        expected = ways[0](None).generate(*images).tokens
        rows = [compare(part, part.generate(*images).tokens, expected) for way in ways for part in self._pipelines(way)]
        keep_rows(folder / "agreement.jsonl", rows)
        return rows

    def _pipelines(self, pipeline: PipelineFactory) -> list[Pipeline]:
        """Plain decoding and each tree; pipelines of equal descriptions once."""
        pipelines = [pipeline(tree) for tree in (None, *self.trees.values())]
        return list({str(part.describe()): part for part in pipelines}.values())


def without_graphs(pipeline: PipelineFactory) -> PipelineFactory:
    """The same pipelines with passes that are not recorded."""
    target = pipeline.plain.target
    if not isinstance(target, CachedTarget):
        return pipeline
    return replace(pipeline, plain=replace(pipeline.plain, target=target.launched()))


def compare(pipeline: Pipeline, tokens: Tensor, expected: Tensor) -> Row:
    """tokens, expected [B, L] -> how far they agree."""
    target, same = pipeline.target, tokens == expected
    return {
        "drafter": pipeline.drafter.name,
        "tree": pipeline.drafter.tree.name,
        "dtype": str(target.embed_weight.dtype).removeprefix("torch."),
        "cuda_graphs": target.passes.cuda_graphs,
        "images": len(tokens),
        "equal_images": int(same.all(1).sum()),
        "equal_before_first_difference": float(same.long().cumprod(1).float().mean()),
    }
