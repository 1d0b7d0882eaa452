"""A miniature tokenizer and target, untrained."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.commands import refusal, trainings_here
from support.tiny_tasks import CODES, target_task

from lantern.models.checkpoints import save_weights
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.weights_folder import load_target


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


@pytest.fixture
def target(weights: Path) -> LlamaGenTarget:
    return load_target(weights / "target", weights / "tokenizer", dtype="float32", device="cpu")


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """What train.py or another of its kind says, in this process."""
    monkeypatch.chdir(tmp_path)
    with trainings_here(monkeypatch):
        yield lambda command, *arguments: refusal(monkeypatch, command, *arguments, "logger.wandb=null")
