"""Training on several processes equals training on one, to rounding."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.paths import ROOT, SUPPORT, TESTS
from support.several_processes import trained

from lantern.errors import LanternError
from lantern.training.data_module import SeededBatches

ROUNDING = 1e-6  # after five steps; dropout keyed by process changes weights by 2e-3 or more


@pytest.fixture(scope="module")
def together(weights, tmp_path_factory) -> Path:
    """The folder of what two processes have trained."""
    folder = tmp_path_factory.mktemp("together")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [sys.executable, *launcher, str(SUPPORT / "several_processes.py"), str(weights), str(folder)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{TESTS}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-5000:]
    return folder


@pytest.fixture(scope="module")
def alone(weights) -> dict[str, dict]:
    """State dicts after one process's training, by kind."""
    return {kind: trained(kind, weights, 1).state_dict() for kind in ("target", "drafter")}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["target", "drafter"])
def test_several_processes_train_the_weights_of_one(kind, together, alone):
    """Gloo, with the same images a step. Catches batches, noise or dropout that depend on the process, and an
    initialisation from one process's images."""
    found = torch.load(together / f"{kind}-2.pt", weights_only=True)
    assert found.keys() == alone[kind].keys()
    for name, value in alone[kind].items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_a_step_has_the_same_images_on_any_number_of_processes(processes):
    shares = [list(SeededBatches(14, 6, 5, rank, processes)) for rank in range(processes)]
    steps = [sorted(item for share in step for item in share) for step in zip(*shares, strict=True)]
    assert steps == [sorted(batch) for batch in SeededBatches(14, 6, 5)]


def test_a_batch_that_cannot_be_shared_equally_is_one_sentence():
    with pytest.raises(LanternError, match=r"batches\.batch_size=8 cannot be shared equally by 3 processes"):
        SeededBatches(12, 8, 0, 0, 3)
