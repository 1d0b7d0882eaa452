"""What a run folder holds of its images and its request. prompts.jsonl is an append-only log of finished images: one
JSON line per image, with its tokens, flushed before the next image starts, so that a killed run goes on where it
stopped. Lines are found by a hash of all that determines the image, in any of the files."""

import base64
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lantern.errors import LanternError, is_whole, unwritable
from lantern.evaluation.rows import Row, append_rows, encode, read_rows, read_summary
from lantern.identity import MAKING, PROVENANCE, machine, tensor_hash, without_device_index, without_metrics
from lantern.runtime.files import read_object, replace_text
from lantern.types import Generation

log = logging.getLogger(__name__)
RECORDS = "prompts.jsonl"
FINISHED = "finished.json"
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
    """The cost of each image: its steps, drafter forwards in proportion to its steps, and an equal share of the
    batch's times and nodes."""
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


def check_shards(folder: Path, config: Mapping[str, Any], hashes: Mapping[str, str | None]) -> None:
    """Raises LanternError if a shard below a folder was made with other code or weights (`hashes`) than this run has,
    or if all shards have other settings: their images would be made again without notice. Warns where no shard was
    timed on a machine like this one."""
    shards = {path.parent: read_provenance(path.parent) for path in sorted(folder.glob(f"*/{PROVENANCE}"))}
    shards = {place: made for place, made in shards.items() if made and is_sharded(made["config"])}
    now, others = without_device_index(config), {}
    for place, made in shards.items():
        before = without_device_index(made["config"])
        settings = [name for name in MAKING if before.get(name) != now.get(name)]
        read = [name for name, value in without_metrics(hashes).items() if made["hashes"].get(name) != value]
        if settings or read:
            others[place] = settings or read
        if (read and not settings) or len(others) == len(shards):
            raise LanternError(
                f"{place} was made with other {', '.join(others[place])} than this run has; measure it with its own, "
                "or move it out of the folder"
            )
    here = tuple(machine(config).values())
    timed = {(made["device"], made["threads"]) for made in shards.values()}
    if timed and here not in timed and config.get("speed", {}).get("num_prompts"):
        device, threads = min(timed)
        log.warning(
            f"the shards in {folder} timed on {device} with {threads} threads, this is {here[0]} with {here[1]}: their "
            f"images are timed again here; to use their times, measure on such a machine with OMP_NUM_THREADS={threads}"
        )


def read_provenance(folder: Path) -> dict[str, Any]:
    """What write_provenance has written to a folder; empty where that is missing or, with a warning, damaged."""
    return read_object(folder / PROVENANCE)


def is_sharded(config: Mapping[str, Any]) -> bool:
    return is_whole(shards := config.get("shards")) and shards > 1


def is_finished(folder: Path, request: str) -> bool:
    """Whether a folder holds the finished run of this request."""
    return read_object(folder / FINISHED).get("request") == request and bool(read_summary(folder))


def place_note(folder: Path, config: Mapping[str, Any]) -> str:
    """What to add to "is finished" where a folder's run was made on a machine unlike this one, empty on one like it."""
    made, here = read_object(folder / PROVENANCE), machine(config)
    there = {name: made.get(name) for name in here}
    if not made or there == here:
        return ""
    return (
        f", measured on {there['device']} with {there['threads']} threads, which is not this machine "
        f"({here['device']}, {here['threads']} threads): measure here in another folder, hydra.run.dir=…"
    )


def mark_begun(folder: Path) -> None:
    """Removes the mark of an earlier request, whose files this run replaces one by one."""
    try:
        (folder / FINISHED).unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(folder / FINISHED, error) from error


def mark_finished(folder: Path, request: str, overrides: Sequence[str] = ()) -> None:
    """Marks a request as finished, after everything else is written. overrides: of the command, for reproduce=."""
    replace_text(folder / FINISHED, encode({"request": request, "overrides": [*overrides]}) + "\n")


def record_files(folder: Path) -> list[Path]:
    """The records of a run or sweep folder: its own, those of its points or shards, and of the AR images they share."""
    return [path for pattern in ("", "*/", "*/*/") for path in sorted(folder.glob(f"{pattern}{RECORDS}"))]
