"""What `make env` leaves: an environment in which a program of one's own imports what needs torchvision."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lantern.cli.torchvision_operators import MENDED

USERS = "from transformers import JanusForConditionalGeneration"


def run(folder: Path, *command: str) -> int:
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True).returncode


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_a_torchvision_of_another_build_is_mended_for_every_program(tmp_path):
    """In plain Python, without lantern. Catches a mending of commands alone, one that is written twice, and a change of
    a torchvision that works."""
    shutil.copytree(Path(find_spec("torchvision").origin).parent, tmp_path / "torchvision")
    extension = tmp_path / "torchvision" / "extension.py"
    extension.write_text(extension.read_text().replace(MENDED, ""))
    fails, before = run(tmp_path, "-c", "import torchvision"), extension.read_text()
    for _ in range(2):
        assert run(tmp_path, "-m", "lantern.cli.torchvision_operators") == 0
    assert extension.read_text() == (before + MENDED if fails else before)
    assert run(tmp_path, "-c", USERS) == 0
