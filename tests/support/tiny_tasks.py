"""A miniature target task, drafter task and token data set, untrained."""

from pathlib import Path

import torch
from support.recipes import feature_lk

from lantern.sampling import Sampling
from lantern.training.drafter_task import DrafterTask
from lantern.training.recipe import Recipe
from lantern.training.target_task import TargetTask

ARCHITECTURE = dict(dim=16, num_layers=2, num_heads=2, grid=[4, 4], caption_dim=8, prefix_len=6, multiple_of=8)
VOCABULARY = ["a", "red", "blue", "ring", "on", "wood"]
CODES = 32


class MemorySplit(list):
    """Items with what every split has."""

    fingerprint = "memory"

    @property
    def captions(self) -> list[str]:
        return [item["caption"] for item in self]


class MemorySplits:
    """The same random tokens in every split."""

    def __init__(self, count: int = 12) -> None:
        self.tokens = torch.randint(CODES, (count, 16), generator=torch.Generator().manual_seed(1))
        self.captions = ["a red ring on wood" if i % 2 else "wood" for i in range(count)]

    def split(self, name: str) -> MemorySplit:
        return MemorySplit({"tokens": t, "caption": c} for t, c in zip(self.tokens, self.captions, strict=True))


def target_task(weights: Path, seed: int = 0, **others: object) -> TargetTask:
    """others: TargetTask's start_from."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return TargetTask(
            ARCHITECTURE, VOCABULARY, word_seed=0, tokenizer=str(weights / "tokenizer"), lr=1e-2, muon_lr=1e-2,
            weight_decay=0.01, caption_dropout=0.3, seed=seed, **others,
        )  # fmt: skip


def drafter_task(
    target, sampling: Sampling | None = None, seed: int = 0, recipe: Recipe | None = None, **others: object
) -> DrafterTask:
    """others: DrafterTask's student and start_from."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return DrafterTask(
            target, sampling or Sampling(), recipe or feature_lk(), lr=1e-2, muon_lr=1e-2, weight_decay=0.0,
            validation_depth=3, seed=seed, **others,
        )  # fmt: skip
