"""Reads an offline W&B run back: a LevelDB-style log of protobuf records behind a seven-byte header."""

import json
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

BLOCK, HEADER = 32768, 7
PATIENCE_S = 20
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class OfflineRun:
    """The content of a run, as a server would receive it."""

    run: object = None  # the protobuf record: project, run_group, job_type, tags, run_id, display_name
    config: dict = field(default_factory=dict)
    history: list[dict] = field(default_factory=list)
    summary: dict = field(default_factory=dict)
    artifacts: list = field(default_factory=list)
    exit_code: int | None = None


def records(path: Path) -> list[Record]:
    """Every whole record of a .wandb file."""
    data, offset, found, parts = path.read_bytes(), HEADER, [], b""
    while offset + HEADER <= len(data):
        left = BLOCK - offset % BLOCK
        if left < HEADER:  # a block's last bytes hold no header
            offset += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, offset)
        offset += HEADER
        if not kind or offset + length > len(data):
            break  # still being written
        parts = data[offset : offset + length] if kind in (FULL, FIRST) else parts + data[offset : offset + length]
        offset += length
        if kind in (FULL, LAST):
            found.append(Record.FromString(parts))
    return found


def read_run(folder: Path) -> OfflineRun:
    """The one run of an offline-run folder. W&B's service writes on for a moment after finish() has returned."""
    for _ in range(PATIENCE_S * 10):
        for path in folder.glob("*.wandb"):
            if (read := _read(path)).exit_code is not None:
                return read
        time.sleep(0.1)
    said = "".join(path.read_text()[-2000:] for path in folder.glob("logs/debug*.log"))
    raise AssertionError(f"{folder} holds no whole run after {PATIENCE_S} s: {said}")


def runs_below(folder: Path, count: int) -> list[OfflineRun]:
    """The `count` runs anywhere below a folder, waited for like the end of one."""
    for _ in range(PATIENCE_S * 10):
        if len(paths := sorted(folder.glob("**/*.wandb"))) >= count:
            break
        time.sleep(0.1)
    logs = [f"{path}: {path.read_text()[-2000:]}" for path in sorted(folder.glob("**/offline-run-*/logs/debug*.log"))]
    assert len(paths) == count, "\n".join([f"{len(paths)} W&B runs, not {count}, are below {folder}", *logs])
    return [read_run(path.parent) for path in paths]


def _read(path: Path) -> OfflineRun:
    read = OfflineRun()
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            read.run = record.run
            read.config |= _items(record.run.config.update)
        elif kind == "config":
            read.config |= _items(record.config.update)
        elif kind == "history":
            read.history.append(_items(record.history.item))
        elif kind == "summary":
            read.summary |= _items(record.summary.update)
        elif kind == "artifact":
            read.artifacts.append(record.artifact)
        elif kind == "request" and record.request.WhichOneof("request_type") == "log_artifact":
            read.artifacts.append(record.request.log_artifact.artifact)
        elif kind == "exit":
            read.exit_code = record.exit.exit_code
    return read


def read_runs(folder: Path) -> list[OfflineRun]:
    """The offline runs below a folder, in the order of their names."""
    return [read_run(path) for path in sorted(folder.glob("wandb/offline-run-*"))]


def _items(items) -> dict:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
