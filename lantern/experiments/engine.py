"""Benchmark of the engine on this machine: the cost of a pass over N nodes, and the throughput of plain decoding and a
set of trees at several batch sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from lantern.data.prompts import Batch
from lantern.engine.graphs import PassGraphs
from lantern.evaluation.records import image_costs
from lantern.evaluation.rows import Row, append_rows
from lantern.evaluation.sides import call_in_turn
from lantern.evaluation.speed import costs, tokens_per_step
from lantern.pipeline import PipelineFactory
from lantern.tuning.auto import AutoTree, resolve_tree
from lantern.types import DraftTree, Generation, Target, TreePolicy, TreeTopology, Verdict

PASS_REPEATS = 30
BATCHES_PER_CALL = 2  # images of a call over the batch size, so that rows that finish early are refilled


@dataclass(frozen=True)
class Benchmark:
    """`trees` by name; each runs at every batch size, interleaved with plain decoding."""

    trees: dict[str, TreePolicy]
    batch_sizes: Sequence[int]
    num_nodes: Sequence[int]
    num_prompts: int

    def run(self, pipeline: PipelineFactory, prompts: Sequence[str], seed: int, folder: Path) -> list[Row]:
        """Writes benchmark.jsonl and prints the rows of each batch size."""
        target = pipeline(None).target
        times = {size: _pass_ms(target, size, prompts[0]) for size in sorted({1, *self.num_nodes})}
        passes = [{"nodes": n, "pass_ms": times[n], "over_one": times[n] / times[1]} for n in self.num_nodes]
        keep_rows(folder / "benchmark.jsonl", passes)
        rows = []
        for batch_size in self.batch_sizes:
            size = BATCHES_PER_CALL * batch_size if batch_size > 1 else 1  # where each image is timed alone
            batch = Batch.cycle(prompts, max(self.num_prompts, size), seed)
            parts = [batch.part(slice(start, start + size)) for start in range(0, len(batch.prompts), size)]
            measured = self._decode(pipeline, [(part.prompts, part.seeds, batch_size) for part in parts], batch_size)
            keep_rows(folder / "benchmark.jsonl", measured)
            rows += measured
        return [*passes, *rows]

    def _decode(self, pipeline: PipelineFactory, calls: Sequence[tuple], batch_size: int) -> list[Row]:
        trees: dict = {"none": None}
        for name, tree in self.trees.items():
            trees[name] = resolve_tree(tree.at(batch_size) if isinstance(tree, AutoTree) else tree, pipeline)
        target = pipeline(None).target
        timed = ["none", *(name for name, tree in trees.items() if tree is not None)]  # plain decoding is timed once
        decoders = [pipeline(trees[name]).generate for name in timed]
        drafters = [pipeline(trees[name]).drafter for name in timed]
        target.allocate(batch_size, max(drafter.num_nodes for drafter in drafters))  # one place for all: recorded
        max(drafters, key=attrgetter("num_nodes")).allocate(batch_size)  # passes end with their cache
        for decode in decoders:
            decode(*calls[0])  # warms up
        decoded = dict(zip(timed, call_in_turn(decoders, calls), strict=True))
        held = target.passes if isinstance(target.passes, PassGraphs) else None
        plain, made = decoded["none"], {name: decoded.get(name, decoded["none"]) for name in trees}
        return [
            {"batch": batch_size, "tree": name, "is": pipeline(trees[name]).describe()["tree"]}
            | throughput_row(own, target.num_tokens)
            | {
                "speedup": sum(g.latency_s for g in plain) / sum(g.latency_s for g in own),
                "equal_images": equal_images(own, plain),
                "graphs": held and held.count,  # with the memory of their inputs and outputs
                "graphs_mib": held and held.nbytes / 2**20,
            }
            for name, own in made.items()
        ]


def equal_images(own: Sequence[Generation], plain: Sequence[Generation]) -> float:
    """Share of images whose tokens are those of plain decoding: all of a lossless method's in float32."""
    same = [(one.tokens == other.tokens).flatten(1).all(1) for one, other in zip(own, plain, strict=True)]
    return float(torch.cat(same).float().mean())


def keep_rows(path: Path, rows: Sequence[Row]) -> None:
    """Appends rows to the record of an experiment and prints them."""
    append_rows(path, rows)
    for row in rows:
        shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
        print("  ".join(f"{key} {value}" for key, value in shown.items()))


def _pass_ms(target: Target, size: int, prompt: str) -> float:
    """The median of one image's passes over a chain of `size` nodes, the cache half full."""
    target.allocate(1, target.num_tokens // 2 + size)
    target.prefill([prompt], torch.arange(1))
    half = _chain(target, target.num_tokens // 2)
    target.verify(half)
    path = torch.arange(half.tokens.shape[1], device=half.tokens.device)[None]
    target.commit(Verdict(path, path[:, -1], half.tokens[:, -1]))
    tree, times = _chain(target, size), []
    for _ in range(PASS_REPEATS):
        start = perf_counter()
        float(target.verify(tree).logits[0, -1, 0])  # waits for the device
        times.append(1e3 * (perf_counter() - start))
    return median(times)


def _chain(target: Target, size: int) -> DraftTree:  # of empty tokens, one image
    return TreeTopology.chain(size - 1, target.codebook.device).tree(target.empty_tokens(1, size))


def throughput_row(made: list[Generation], num_tokens: int) -> Row:
    """Throughput, and a round with its parts on the host."""
    seconds, rounds = sum(g.latency_s for g in made), sum(len(g.rounds) for g in made)
    spent = [line for g in made for line in image_costs(g)]
    return costs(spent, torch.device("cpu")) | {
        "images_per_s": sum(len(g.tokens) for g in made) / seconds,
        "tokens_per_step": tokens_per_step(spent, num_tokens),
        "round_ms": 1e3 * seconds / rounds,  # with prefills, refills and the host between the parts
    }
