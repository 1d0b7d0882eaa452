"""What Lightning trains on."""

import pytest
import torch
from hydra.utils import instantiate
from support.configs import composed


@pytest.mark.parametrize(("has_gpu", "expected"), [(False, "cpu"), (True, "cuda")])
def test_a_training_runs_on_a_gpu_or_else_on_the_processor(has_gpu, expected, monkeypatch):
    """On a Mac as well. Catches Lightning's own choice there, mps, which has no float64."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert instantiate(composed("train").trainer.accelerator) == expected
    assert composed("train", "trainer.accelerator=cpu").trainer.accelerator == "cpu"
