"""prompts.jsonl, an append-only log of finished images: one JSON line per image, with its tokens, flushed before the
next image starts, so that a killed run goes on. Lines are found in any file by a hash of all that makes the image."""

import base64
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lantern.errors import is_whole
from lantern.evaluation.rows import Row, append_rows, read_rows
from lantern.identity import tensor_hash
from lantern.types import Generation

RECORDS = "prompts.jsonl"
Name = tuple[object, ...]  # part, prompt, copy
KINDS = {"key": str, "setting": str, "part": str, "prompt": str, "copy": int, "seed": int, "image": str | None}
# milliseconds of a round, summed over rounds and shared equally by the images of a batch; accepting includes the commit
PER_IMAGE = {"draft_ms": ("draft_ms",), "verify_ms": ("verify_ms",), "accept_ms": ("accept_ms", "commit_ms")}


def copy_missing(folder: Path, lines: Sequence[Row], images: Path) -> None:
    """Appends to a folder's record those lines that it lacks, or that lines of other code or weights have replaced
    there. images: the folder of their pictures."""
    home = folder / RECORDS
    there = {_version_of(line) for line in current_lines(read_records(home))} if home.is_file() else set()
    missing = [dict(line) for line in lines if _version_of(line) not in there]
    for line in missing:
        if line["image"] is not None:
            line["image"] = os.path.relpath(images / Path(line["image"]).name, folder)
    append_rows(home, missing)


def read_records(path: Path) -> list[Row]:
    """The lines of images in a file; others, such as those of another program, are passed over."""
    return [line for line in read_rows(path) if all(isinstance(line.get(key), kind) for key, kind in KINDS.items())]


def _version_of(line: Row) -> tuple[object, ...]:
    return line.get("key"), line.get("setting"), *name_of(line), timings_before(line)


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
    count = line.get("retimed")
    return count if is_whole(count) else 0


def lines_of(
    generation: Generation, part: str, images: Sequence[tuple[str, int, int]], **timed: float | None
) -> list[Row]:
    """A line an image (prompt, copy, seed) of a generation; `timed` holds its measured seconds."""
    return [
        {"part": part, "prompt": prompt, "copy": copy, "seed": seed}
        | {"tokens": tensor_hash(tokens), "codes": pack(tokens), **timed, **spent}
        for (prompt, copy, seed), tokens, spent in zip(images, generation.tokens, image_costs(generation), strict=True)
    ]


def image_costs(generation: Generation) -> list[Row]:
    """Of each image its steps, drafter forwards in proportion to them, an equal share of a batch's times and nodes."""
    count, rounds = len(generation.tokens), generation.rounds
    forwards = generation.drafter_forwards / max(1, len(rounds))
    shared = {key: sum(getattr(r, part) for r in rounds for part in parts) / count for key, parts in PER_IMAGE.items()}
    shared |= {"rounds": len(rounds) / count, "nodes": sum(r.num_judged for r in rounds) / count}
    shared["drafter_forward_ms"] = 1e3 * generation.drafter_s / count
    shared |= {"head_ms": 1e3 * generation.head_s / count} if generation.head_s else {}
    return [{"steps": int(n), "drafter_forwards": forwards * int(n), **shared} for n in generation.steps]


def pack(tokens: Tensor) -> str:
    """Tokens as text: little-endian numbers in base 64, int32 for codes [L]; for latents [L, C] float32 behind "C:"."""
    kind, mark = ("<f4", f"{tokens.shape[1]}:") if tokens.is_floating_point() else ("<i4", "")
    return mark + base64.b64encode(tokens.cpu().numpy().astype(kind).tobytes()).decode()


def unpack(codes: str) -> Tensor:
    """-> tokens [L], or latents [L, C]."""
    channels, mark, numbers = codes.rpartition(":")
    if mark:
        return torch.from_numpy(np.frombuffer(base64.b64decode(numbers), "<f4").reshape(-1, int(channels)).copy())
    return torch.from_numpy(np.frombuffer(base64.b64decode(numbers), "<i4").astype(np.int64))
