"""What a round of continuous tokens costs by the number of its nodes: the target's pass, and the diffusion head behind
it, whose steps all nodes share. On a CPU in processor time, which other processes hardly change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import torch

from lantern.continuous.latent_sampling import TokenHead
from lantern.evaluation.rows import Row
from lantern.experiments.engine import PASS_REPEATS, keep_rows, pass_costs
from lantern.pipeline import PipelineFactory


@dataclass(frozen=True)
class NodeCosts:
    """Chains of these numbers of nodes behind half an image."""

    num_nodes: Sequence[int]

    @torch.inference_mode()
    def run(self, pipeline: PipelineFactory, prompts: Sequence[str], seed: int, folder: Path) -> list[Row]:
        """Writes node_costs.jsonl and prints its rows: medians of milliseconds, and the tokens that such a round must
        commit to be as fast as plain decoding."""
        head = TokenHead(pipeline.plain.target)
        clock = process_time if head.target.codebook.device.type == "cpu" else perf_counter
        sizes = sorted({1, *self.num_nodes})
        rows = [
            row | {"head_ms": head_ms(head, row["nodes"], clock)}
            for row in pass_costs(head.target, sizes, prompts[0], clock)
        ]
        one = rows[0]["pass_ms"] + rows[0]["head_ms"]
        rows = [row | {"break_even": (row["pass_ms"] + row["head_ms"]) / one} for row in rows]
        keep_rows(folder / "node_costs.jsonl", rows)
        return rows


def head_ms(head: TokenHead, nodes: int, clock: Callable[[], float]) -> float:
    """Median of the head's run on the conditions of an image's nodes."""
    generator = torch.Generator().manual_seed(0)
    conditions = torch.randn(1, nodes, head.width, generator=generator).to(head.target.embed_weight)
    normals = torch.randn(1, nodes, *head.shape, generator=generator).to(conditions.device)
    times = []
    for _ in range(PASS_REPEATS):
        start = clock()
        float(head(conditions, normals).mean[0, -1, 0])  # waits for the device
        times.append(1e3 * (clock() - start))
    return median(times)
