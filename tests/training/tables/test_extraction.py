"""The memory of token extraction over WebDataset shards. Run as a program with a folder, it prints the images of each
extraction in turn and the bytes that it added."""

import support.as_a_command  # noqa: F401

# isort: split
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.paths import ROOT
from support.shards import picture, write_shard
from torch import Tensor, nn

from lantern.data.webdataset import web_dataset
from lantern.training.data_module import ResumableLoader, SeededBatches
from lantern.training.tables.tokens import TokenTable

SIDE = 64  # pixels, each of them a token
SHARDS = (1, 3, 18)  # the first extraction loads what all need
IMAGES_PER_SHARD = 100
HELD = 8 * SIDE**2  # bytes of the tokens of an image, were they held in memory as integers


class PixelTokenizer(nn.Module):
    """The red value of each pixel as its token."""

    def __init__(self) -> None:
        super().__init__()
        self.codebook = nn.Parameter(torch.zeros(256, 1))

    def encode(self, images: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, L]
        return (images[:, 0] * 255).round().long().flatten(1)


def memory() -> int:
    """Bytes of this process that no file backs: mapped tables, which the system may drop, are not among them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def write_shards(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        samples = [(f"{i:04d}", (7 * i + number) % 256) for i in range(IMAGES_PER_SHARD)]
        members = [((f"{key}.png", picture(red)), (f"{key}.txt", f"{number} {red}".encode())) for key, red in samples]
        write_shard(folder / f"{number:03d}.tar", [member for pair in members for member in pair])
    return folder


def extracted(shards: Path, cache: Path) -> tuple[int, int]:
    """The number of images that were extracted and then read as for a training, and the most bytes that this added."""
    before = memory()
    images = web_dataset(str(shards), SIDE, str(cache), validation_share=0.0)
    items = TokenTable(images, PixelTokenizer(), str(cache)).split("train")
    peak = memory()
    for _ in ResumableLoader(items, SeededBatches(len(items), 8, 0)):
        peak = max(peak, memory())
    return len(items), peak - before


@pytest.mark.full
def test_memory_is_the_same_for_six_times_the_images(tmp_path):
    """Catches a table, an index or an epoch that is held in memory: the tokens alone would be 49 MB more."""
    places = {"PYTHONPATH": f"{ROOT}:{ROOT}/tests", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | places, stdout=subprocess.PIPE, text=True, check=True)
    images, grown = zip(*(map(int, line.split()) for line in done.stdout.splitlines()[-len(SHARDS) :]), strict=True)
    assert images == tuple(IMAGES_PER_SHARD * count for count in SHARDS)
    assert grown[2] - grown[1] < HELD * 1500 / 3


if __name__ == "__main__":
    for count in SHARDS:
        shards = write_shards(Path(sys.argv[1]) / f"{count}", count)
        print(*extracted(shards, shards.with_name(f"cache{count}")))
