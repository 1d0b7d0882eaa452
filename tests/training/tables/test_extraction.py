"""The memory of token extraction over WebDataset shards."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT
from support.shards import picture, write_shard

pytestmark = pytest.mark.full
IMAGES_PER_SHARD = 100
HELD = 8 * 64 * 64  # bytes of the tokens of an image, were they held in memory as integers


def write_shards(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        samples = [(f"{i:04d}", (7 * i + number) % 256) for i in range(IMAGES_PER_SHARD)]
        members = [((f"{key}.png", picture(red)), (f"{key}.txt", f"{number} {red}".encode())) for key, red in samples]
        write_shard(folder / f"{number:03d}.tar", [member for pair in members for member in pair])
    return folder


def test_memory_is_the_same_for_six_times_the_images(tmp_path):
    """Catches a table, an index or an epoch that is held in memory: the tokens alone would be 49 MB more."""

    def extracted(count: int) -> dict:
        arguments = [str(write_shards(tmp_path / f"{count}", count)), str(tmp_path / f"cache{count}")]
        command = [sys.executable, "tests/support/extraction.py", *arguments]
        places = {"PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
        environment = os.environ | places | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    few, many = extracted(3), extracted(18)
    assert (few["images"], many["images"]) == (300, 1800)
    assert many["grown"] - few["grown"] < HELD * 1500 / 3
