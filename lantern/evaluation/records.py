"""The record of finished images: a line an image in prompts.jsonl, on disk as soon as it is made, with its tokens, so
that a run that was killed goes on where it stopped. Records are found by what determines them, wherever they lie."""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lantern.evaluation.rows import Row, append_rows, read_rows
from lantern.types import Generation

RECORDS = "prompts.jsonl"
Image = tuple[str, int]  # prompt, copy
# of a round; summed over rounds and shared among the images of a batch. Accepting includes what it leads to.
PER_IMAGE = {"draft_ms": ("draft_ms",), "verify_ms": ("verify_ms",), "accept_ms": ("accept_ms", "commit_ms")}


class Ledger:
    """Finished images of one setting. Equal keys mean equal tokens; `files` are searched, `home` is written."""

    def __init__(
        self, home: Path, files: Sequence[Path], key: str, common: Mapping[str, object], images: Mapping[Image, Path]
    ) -> None:
        """common: what every line says of its setting; images: the file of an image, by prompt and copy."""
        self.home, self.common, self.images = home, {"key": key, **common}, images
        lines = [line for path in dict.fromkeys([*files, home]) if path.is_file() for line in read_rows(path)]
        self._found = {name_of(line): line for line in lines if line.get("key") == key}

    @property
    def key(self) -> str:
        return self.common["key"]

    def find(self, part: str, prompt: str, copy: int) -> Row | None:
        return self._found.get((part, prompt, copy))

    def add(self, lines: Sequence[Row]) -> None:
        """Appends them; they are on disk when this returns."""
        lines = [self.common | line | {"image": self._image(line)} for line in lines]
        append_rows(self.home, lines)
        self._found |= {name_of(line): line for line in lines}

    def _image(self, line: Row) -> str | None:
        file = self.images.get((line["prompt"], line["copy"]))
        return None if file is None else os.path.relpath(file, self.home.parent)


def copy_missing(folder: Path, lines: Sequence[Row], origins: Mapping[str, Path]) -> None:
    """Completes a folder's record with lines that lie elsewhere; origins: the folder of a setting's images."""
    home = folder / RECORDS
    there = {(line.get("key"), *name_of(line)) for line in read_rows(home)} if home.is_file() else set()
    missing = [line for line in lines if (line["key"], *name_of(line)) not in there]
    append_rows(home, [line | {"image": _moved(line["image"], origins[line["setting"]], folder)} for line in missing])


def _moved(image: str | None, origin: Path, folder: Path) -> str | None:
    return None if image is None else os.path.relpath(origin / Path(image).name, folder)


def name_of(line: Row) -> tuple[object, ...]:
    return line.get("part"), line.get("prompt"), line.get("copy")


def lines_of(generation: Generation, part: str, images: Sequence[tuple[str, int, int]], **timed: float) -> list[Row]:
    """A line an image (prompt, copy, seed) of a generation; `timed` holds its measured seconds."""
    return [
        {"part": part, "prompt": prompt, "copy": copy, "seed": seed}
        | {"tokens": token_hash(tokens), "codes": pack(tokens), **timed, **spent}
        for (prompt, copy, seed), tokens, spent in zip(images, generation.tokens, spent_by(generation), strict=True)
    ]


def spent_by(generation: Generation) -> list[Row]:
    """What each image took: its steps, and its share of what it took together with the images beside it."""
    count = len(generation.tokens)
    shared = {
        name: sum(getattr(r, part) for r in generation.rounds for part in parts) / count
        for name, parts in PER_IMAGE.items()
    }
    shared |= {
        "rounds": len(generation.rounds) / count,
        "drafter_forwards": generation.drafter_forwards / count,
        "drafter_forward_ms": 1e3 * generation.drafter_s / count,
        "nodes": sum(turn.judged for turn in generation.rounds) / count,
    }
    return [{"steps": int(steps), **shared} for steps in generation.steps]


def pack(tokens: Tensor) -> str:
    """Tokens [L] as text: little-endian int32 in base 64."""
    return base64.b64encode(tokens.cpu().numpy().astype("<i4").tobytes()).decode()


def unpack(codes: str) -> Tensor:
    """-> tokens [L]"""
    return torch.from_numpy(np.frombuffer(base64.b64decode(codes), "<i4").astype(np.int64))


def token_hash(tokens: Tensor) -> str:
    """Sixteen hex digits of the SHA-256 of one image's tokens [L]."""
    return hashlib.sha256(tokens.cpu().long().contiguous().numpy().tobytes()).hexdigest()[:16]


def key_of(*parts: object) -> str:
    """Sixteen hex digits of what determines an image, this package's code included."""
    return hashlib.sha256(repr((*parts, code_hash())).encode()).hexdigest()[:16]


@lru_cache
def code_hash() -> str:
    """Hash of this package's source, so that no change of it goes on with what it made before."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
