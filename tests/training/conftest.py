"""A miniature tokenizer, target and token data set, untrained."""

from pathlib import Path

import pytest
import torch

from lantern.models.checkpoints import save_weights
from lantern.models.llamagen.loading import load_target
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.training.target import TargetTask

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


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tokenizer/ and target/, as data/weights has them."""
    folder = tmp_path_factory.mktemp("weights")
    config = dict(
        channels=8, encoder_multipliers=[1, 1], decoder_multipliers=[1, 1], codebook_size=CODES, code_dim=4,
        z_channels=8, num_res_blocks=1, groups=4,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_weights(folder / "tokenizer", VQTokenizer(**config).state_dict(), config)
        task = target_task(folder)
        for weight in task.transformer.parameters():  # laws that differ from site to site
            weight.data.add_(0.3 * torch.randn_like(weight))
        task.export(folder / "target")
    return folder


def target_task(weights: Path, seed: int = 0) -> TargetTask:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return TargetTask(
            ARCHITECTURE, VOCABULARY, word_seed=0, tokenizer=str(weights / "tokenizer"), lr=1e-2, muon_lr=1e-2,
            weight_decay=0.01, caption_dropout=0.3, seed=seed,
        )  # fmt: skip


@pytest.fixture
def target(weights: Path) -> LlamaGenTarget:
    return load_target(weights / "target", weights / "tokenizer", dtype="float32", device="cpu")
