"""Append-only log of finished images: one JSON line per image in prompts.jsonl, with its tokens, flushed before the
next image starts, so that a killed run goes on where it stopped. Lines are found by a hash of all that determines the
image, in any of the files."""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lantern.evaluation.provenance import code_hash
from lantern.evaluation.rows import Row, append_rows, read_rows
from lantern.types import Generation

RECORDS = "prompts.jsonl"
Image = tuple[str, int]  # prompt, copy
Name = tuple[object, ...]  # part, prompt, copy
# milliseconds of a round, summed over rounds and shared equally by the images of a batch; accepting includes the commit
PER_IMAGE = {"draft_ms": ("draft_ms",), "verify_ms": ("verify_ms",), "accept_ms": ("accept_ms", "commit_ms")}


class Ledger:
    """Append-only record of the finished images of one setting. Equal keys mean equal tokens; `files` are read, `home`
    is read and written. Of several lines of an image the one timed last counts."""

    def __init__(
        self, home: Path, files: Sequence[Path], key: str, common: Mapping[str, object], images: Mapping[Image, Path]
    ) -> None:
        """common: the keys that all its lines share; images: the file of an image, by prompt and copy."""
        self._home, self._common, self._images = home, {"key": key, **common}, images
        lines = [line for path in dict.fromkeys([*files, home]) if path.is_file() for line in read_rows(path)]
        own = sorted((line for line in lines if line.get("key") == key), key=timings_before)
        # a kept line belongs to this setting as well, which differs from its first one in its list of images alone
        self._found = {name_of(line): {**line, **common, "image": self._file(line)} for line in own}
        self._tokens: dict[Name, Tensor] = {}  # of the images made in this process

    @property
    def key(self) -> str:
        """What determines the images: equal keys mean equal tokens."""
        return str(self._common["key"])

    def find(self, part: str, prompt: str, copy: int) -> Row | None:
        """The line of an image, or None."""
        return self._found.get((part, prompt, copy))

    def tokens(self, line: Row) -> Tensor:
        """Tokens [L, ...] of a line: as they were added, or unpacked where the line was read from a file."""
        made = self._tokens.get(name_of(line))
        return unpack(line["codes"]) if made is None else made

    def add(self, lines: Sequence[Row], tokens: Tensor) -> None:
        """Appends the lines of images with tokens [N, L, ...]; they are on disk when this returns."""
        lines = [self._common | line | {"image": self._file(line)} for line in lines]
        append_rows(self._home, lines)
        names = [name_of(line) for line in lines]
        self._found |= dict(zip(names, lines, strict=True))
        self._tokens |= dict(zip(names, tokens.cpu(), strict=True))

    def _file(self, line: Row) -> str | None:
        file = self._images.get((line["prompt"], line["copy"]))
        return None if file is None else os.path.relpath(file, self._home.parent)


def copy_missing(folder: Path, lines: Sequence[Row], origins: Mapping[str, Path]) -> None:
    """Appends to a folder's record the lines that only other files hold, or that lines of other code follow; origins:
    the image folder of a setting."""
    home = folder / RECORDS
    there = {_version_of(line) for line in current_lines(read_rows(home))} if home.is_file() else set()
    missing = [line for line in lines if _version_of(line) not in there]
    append_rows(home, [line | {"image": _moved(line["image"], origins[line["setting"]], folder)} for line in missing])


def _moved(image: str | None, origin: Path, folder: Path) -> str | None:
    return None if image is None else os.path.relpath(origin / Path(image).name, folder)


def name_of(line: Row) -> Name:
    """What tells the lines of one key apart."""
    return line.get("part"), line.get("prompt"), line.get("copy")


def current_lines(lines: Sequence[Row]) -> list[Row]:
    """The lines of a record that its folder's last run made or read: those with the key of the last line of their
    setting and part. Others are of earlier code or weights."""
    last = {(line.get("setting"), line.get("part")): line.get("key") for line in lines}
    return [line for line in lines if line.get("key") == last[line.get("setting"), line.get("part")]]


def timings_before(line: Row) -> int:
    """How often the image was timed before this line."""
    return line.get("retimed") or 0


def _version_of(line: Row) -> tuple[object, ...]:
    return line.get("key"), line.get("setting"), *name_of(line), timings_before(line)


def lines_of(
    generation: Generation, part: str, images: Sequence[tuple[str, int, int]], **timed: float | None
) -> list[Row]:
    """A line an image (prompt, copy, seed) of a generation; `timed` holds its measured seconds."""
    return [
        {"part": part, "prompt": prompt, "copy": copy, "seed": seed}
        | {"tokens": token_hash(tokens), "codes": pack(tokens), **timed, **spent}
        for (prompt, copy, seed), tokens, spent in zip(images, generation.tokens, spent_by(generation), strict=True)
    ]


def spent_by(generation: Generation) -> list[Row]:
    """The cost of each image: its steps and, by their number, the drafter forwards of its rounds; of times and nodes an
    equal share of its batch's."""
    count = len(generation.tokens)
    forwards = generation.drafter_forwards / max(1, len(generation.rounds))
    shared = {
        name: sum(getattr(r, part) for r in generation.rounds for part in parts) / count
        for name, parts in PER_IMAGE.items()
    }
    shared |= {
        "rounds": len(generation.rounds) / count,
        "drafter_forward_ms": 1e3 * generation.drafter_s / count,
        "nodes": sum(r.num_judged for r in generation.rounds) / count,
    }
    shared |= {"head_ms": 1e3 * generation.head_s / count} if generation.head_s else {}
    return [{"steps": int(n), "drafter_forwards": forwards * int(n), **shared} for n in generation.steps]


def pack(tokens: Tensor) -> str:
    """Tokens as text: little-endian numbers in base 64, int32 for codes [L]; for latents [L, C] float32 behind
    "C:"."""
    kind, mark = ("<f4", f"{tokens.shape[1]}:") if tokens.is_floating_point() else ("<i4", "")
    return mark + base64.b64encode(tokens.cpu().numpy().astype(kind).tobytes()).decode()


def unpack(codes: str) -> Tensor:
    """-> tokens [L], or latents [L, C]."""
    channels, mark, numbers = codes.rpartition(":")
    if mark:
        return torch.from_numpy(np.frombuffer(base64.b64decode(numbers), "<f4").reshape(-1, int(channels)).copy())
    return torch.from_numpy(np.frombuffer(base64.b64decode(numbers), "<i4").astype(np.int64))


def token_hash(tokens: Tensor) -> str:
    """Sixteen hex digits of the SHA-256 of one image's tokens [L, ...]."""
    return hashlib.sha256(tokens.cpu().contiguous().numpy().tobytes()).hexdigest()[:16]


def key_of(*parts: object) -> str:
    """Sixteen hex digits of the SHA-256 of what determines an image, this package's code and torch's version
    included."""
    return hashlib.sha256(repr((*parts, code_hash(), torch.__version__)).encode()).hexdigest()[:16]
