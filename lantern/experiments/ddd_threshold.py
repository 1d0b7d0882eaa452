"""Calibrates tau of tree=ddd (2409.00142) for a drafter: images are decoded with trees of full depth, from which the
tokens and the cost of a round are computed for each tau."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lantern.data.prompts import Batch
from lantern.evaluation.rows import Row
from lantern.experiments.engine import keep_rows
from lantern.pipeline import PipelineFactory
from lantern.trees.ddd import DDDTree

QUANTILES = 20  # of the confidences, each tried as tau


class Trace(NamedTuple):
    confidence: Mapping[int, float]  # H by checked level
    accepted: int


class RecordingTree:
    """A tree policy that never ends early and records its confidences, one image at a time."""

    def __init__(self, tree: DDDTree) -> None:
        self._tree = DDDTree(tree.total, tree.depth, tree.width, -np.inf, tree.checks, f"{tree.name}_full")
        for key in ("name", "kind", "num_nodes", "num_expanded", "depth", "width"):
            setattr(self, key, getattr(self._tree, key))
        self.confidences: list[dict[int, float]] = []

    def grow(self, *parts):
        grown = self._tree.grow(*parts)
        self.confidences.append({level: float(h[0]) for level, h in self._tree.confidence.items()})
        return grown


@dataclass(frozen=True)
class TauCalibration:
    """Run by +experiment=calibrate_ddd; tau holds for the drafter, verification, sampling and sizes it ran with."""

    tree: DDDTree
    num_prompts: int

    def run(self, pipeline: PipelineFactory, prompts: Sequence[str], seed: int, folder: Path) -> list[Row]:
        """Writes calibration.jsonl, one row per tau, and prints the best one."""
        batch, recording = Batch.cycle(prompts, self.num_prompts, seed), RecordingTree(self.tree)
        made = pipeline(recording).generate(batch.prompts, batch.seeds, 1)
        traces = [Trace(h, record.accepted[0]) for h, record in zip(recording.confidences, made.rounds, strict=True)]
        draft, rest = (sum(getattr(record, part) for record in made.rounds) for part in ("draft_ms", "verify_ms"))
        rest += sum(record.accept_ms + record.commit_ms for record in made.rounds)
        level_ms, fixed_ms = draft / len(traces) / self.tree.depth, rest / len(traces)
        rows = [simulate_tau(traces, tau, self.tree.depth, level_ms, fixed_ms) for tau in tau_candidates(traces)]
        keep_rows(folder / "calibration.jsonl", rows)
        best = max(rows, key=lambda row: row["tokens_per_ms"])
        print(f"decode with: tree=ddd tree.tau={best['tau']:.3g}")
        return rows


def tau_candidates(traces: Sequence[Trace]) -> list[float]:
    """Values of tau from never to always ending a tree."""
    confidences = [h for trace in traces for h in trace.confidence.values()]
    return [-1e9, *np.quantile(confidences, np.linspace(0, 1, QUANTILES)).tolist()]


def simulate_tau(traces: Sequence[Trace], tau: float, depth: int, level_ms: float, fixed_ms: float) -> Row:
    """Average tokens and cost of a round if trees end at tau: tokens below the end are lost; the nodes saved there are
    not used elsewhere."""
    ends = [min([level for level, h in trace.confidence.items() if h < tau], default=depth) for trace in traces]
    tokens = np.mean([1 + min(trace.accepted, end) for trace, end in zip(traces, ends, strict=True)])
    ms = fixed_ms + level_ms * np.mean(ends)
    row = {"tau": tau, "depth": np.mean(ends), "tokens_per_step": tokens, "round_ms": ms, "tokens_per_ms": tokens / ms}
    return {key: float(value) for key, value in row.items()}
