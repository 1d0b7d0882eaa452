"""A Slurm cluster of this host alone for all tests of the folder; they are skipped where Slurm is not installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("cluster.sh")
DAEMONS = ("munged", "slurmctld", "slurmd")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> dict[str, str]:
    """The environment variables with which Slurm's commands reach it."""
    if not all(shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") for name in DAEMONS):
        pytest.skip("Slurm is not installed; apt-get install slurm-wlm munge to run this test")
    folder = tmp_path_factory.mktemp("cluster")
    subprocess.run([SCRIPT, "up", folder], check=True)
    yield os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
    subprocess.run([SCRIPT, "down", folder], check=True)
