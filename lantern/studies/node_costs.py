"""What a round of continuous tokens costs by the number of its nodes: the target's pass, and the diffusion head behind
it, whose steps all nodes share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from lantern.continuous.token_head import TokenHead
from lantern.evaluation.rows import Row, append_rows
from lantern.pipeline import Pipelines
from lantern.studies.engine import PASS_REPEATS, pass_costs


@dataclass(frozen=True)
class NodeCosts:
    """Chains of these numbers of nodes behind half an image."""

    num_nodes: Sequence[int]

    @torch.inference_mode()
    def run(self, pipeline: Pipelines, prompts: Sequence[str], seed: int, folder: Path) -> list[Row]:
        """Writes node_costs.jsonl and prints its rows: medians of milliseconds, and the tokens that such a round must
        commit to be as fast as plain decoding."""
        head = TokenHead(pipeline.plain.target)
        passes = pass_costs(head.target, self.num_nodes, prompts[0])
        found = [row | {"head_ms": head_ms(head, row["nodes"])} for row in passes]
        one = pass_costs(head.target, [1], prompts[0])[0]["pass_ms"] + head_ms(head, 1)
        rows = [row | {"break_even": (row["pass_ms"] + row["head_ms"]) / one} for row in found]
        append_rows(folder / "node_costs.jsonl", rows)
        for row in rows:
            print("  ".join(f"{key} {value:.3g}" for key, value in row.items()))
        return rows


def head_ms(head: TokenHead, nodes: int) -> float:
    """Median of the head's run on the conditions of an image's nodes."""
    generator = torch.Generator().manual_seed(0)
    conditions = torch.randn(1, nodes, head.width, generator=generator).to(head.target.embed_weight)
    normals = torch.randn(1, nodes, *head.shape, generator=generator).to(conditions.device)
    times = []
    for _ in range(PASS_REPEATS):
        start = perf_counter()
        float(head(conditions, normals).mean[0, -1, 0])  # waits for the device
        times.append(1e3 * (perf_counter() - start))
    return median(times)
