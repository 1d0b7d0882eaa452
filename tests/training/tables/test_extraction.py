"""Token extraction over WebDataset shards: by several processes into one folder, one of them killed; memory is flat."""

import json
import os
import subprocess
import sys
import time
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


def started(shards: Path, cache: Path) -> subprocess.Popen:
    command = [sys.executable, "tests/support/extraction.py", shards, cache]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def said_by(process: subprocess.Popen) -> dict:
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return json.loads(said.splitlines()[-1])


def test_processes_fill_one_folder_together_and_one_that_is_killed_leaves_its_shards_to_the_others(tmp_path):
    """Catches rows that are lost, doubled or in another order when their shard is made by another process."""
    shards = write_shards(tmp_path / "shards", 10)
    (shards / "003.tar").write_bytes((shards / "003.tar").read_bytes()[:20_000])
    (shards / "004.tar").write_bytes((shards / "005.tar").read_bytes())
    killed, *others = [started(shards, tmp_path / "together") for _ in range(3)]
    while not list(tmp_path.glob("together/tokens-*/*/shard.json")) and killed.poll() is None:
        time.sleep(0.01)
    killed.kill()
    found = [said_by(process) for process in others]
    alone = said_by(started(shards, tmp_path / "alone"))
    assert [said["read"] for said in found] == [alone["read"]] * 2
    assert 800 < alone["images"] < 900  # of two shards, the part before the end and none
    (listed,) = tmp_path.glob("alone/list-*/skipped.txt")
    assert [line.split(": ")[1] for line in listed.read_text().splitlines()] == [
        "the shard breaks off", f"the shard has the same bytes as {shards}/004.tar",
    ]  # fmt: skip


def test_memory_is_the_same_for_ten_times_the_images(tmp_path):
    """Catches a table, an index or an epoch that is held in memory: the tokens alone would be 88 MB more."""
    few, many = (said_by(started(write_shards(tmp_path / f"{n}", n), tmp_path / f"cache{n}")) for n in (3, 30))
    assert (few["images"], many["images"]) == (300, 3000)
    assert many["grown"] - few["grown"] < HELD * 2700 / 5
