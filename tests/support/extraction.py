"""Extracts tokens from WebDataset shards, reads them in a training's order, and prints the memory used.
Run as a program: extraction.py <folder of shards> <cache folder>."""

import support.as_a_command  # noqa: F401

# isort: split
import json
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from lantern.data.webdataset import web_dataset
from lantern.training.data_module import ResumableLoader, SeededBatches
from lantern.training.tables.tokens import TokenTable

SIDE = 64  # pixels, each of them a token


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


def main(shards: str, cache: str) -> None:
    """Prints a line of JSON."""
    before, peak = memory(), 0
    images = web_dataset(shards, SIDE, cache, validation_share=0.0)
    items = TokenTable(images, PixelTokenizer(), cache).split("train")
    peak = memory()
    for _ in ResumableLoader(items, SeededBatches(len(items), 8, 0)):
        peak = max(peak, memory())
    print(json.dumps({"images": len(items), "grown": peak - before}))


if __name__ == "__main__":
    main(*sys.argv[1:])
