"""Extracts tokens from WebDataset shards, reads them in a training's order, prints what was read and the memory used.
Run as a program: extraction.py <folder of shards> <cache folder>."""

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """A list whose last value is the largest `memory` that was seen so far."""
    peaks, ended = [memory()], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            peaks.append(max(peaks[-1], memory()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peaks
    finally:
        ended.set()
        watcher.join()


def main(shards: str, cache: str) -> None:
    """Prints a line of JSON."""
    before, read = memory(), hashlib.sha256()
    with peak_memory() as peaks:
        images = web_dataset(shards, SIDE, cache, validation_share=0.0, num_workers=1)
        items = TokenTable(images, PixelTokenizer(), cache).split("train")
        for batch in ResumableLoader(items, SeededBatches(len(items), 8, 0)):
            read.update(batch["tokens"].numpy().tobytes())
            read.update("\n".join(batch["caption"]).encode())
    print(json.dumps({"read": read.hexdigest(), "images": len(items), "grown": peaks[-1] - before}))


if __name__ == "__main__":
    main(*sys.argv[1:])
