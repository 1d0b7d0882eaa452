"""Result rows: their keys, a crash-safe append to a file, and a reader that skips incomplete lines."""

import errno
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lantern.drafters.none import NoDrafter
from lantern.errors import writing
from lantern.figures import figures
from lantern.identity import digest
from lantern.runtime.files import bytes_of, read_object, unlinked

Row = dict[str, Any]  # JSON values
SUMMARY = "summary.json"  # the rows of a folder's last run; results.jsonl keeps those of all
WARNING_BREAK = " | "  # between the warnings of a row, whose sentences have semicolons of their own

SETTING_KEYS = (
    "model", "drafter", "drafter_hash", "tree", "verification", "acceptance", "lossless", "k", "delta", "lam",
    "temperature", "top_k", "top_p", "cfg_scale", "seed",
)  # fmt: skip
PROTOCOL_KEYS = (
    "fingerprint", "target_hash", "target_commit", "drafter_commit", "tokenizer_hash", "prompts_hash", "split",
    "batch_size", "dtype", "device", "threads", "compile", "cuda_graphs", "tf32", "version", "code", "user_code",
    "revision", "torch", "law", "warnings",
)  # fmt: skip
IDENTITY_KEYS = (  # identify a setting, with SETTING_KEYS
    "target_hash", "prompts_hash", "split", "num_images", "batch_size", "dtype", "device", "threads", "torch",
    "compile", "fingerprint",
)  # fmt: skip


def fixed_part(values: Mapping[str, object]) -> Row:
    """The keys that every row has, in their order; None where nothing was measured."""
    return {key: values.get(key) for key in SETTING_KEYS + fixed_figures() + PROTOCOL_KEYS}


def fixed_figures() -> tuple[str, ...]:
    """The keys of figures that every row has: of speed with their bounds, which a metric adds itself."""
    fixed = figures(fixed=True)
    return tuple(key for one in fixed for key in (one.keys if one.kind == "speed" else [one.key]))


def setting_id(row: Mapping[str, object]) -> str:
    """The id of a setting: rows that decode the same prompts in the same way have equal ids. What has no key of its
    own, such as a tree's paths, is in the fingerprint."""
    keys = (*SETTING_KEYS, *config_keys([row]), *IDENTITY_KEYS)
    return digest({key: row.get(key) for key in keys})


def config_keys(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """The keys of settings without a fixed column. They are named as in the config, group first: acceptance.eps."""
    return sorted({key for row in rows for key in row if "." in key and key.split(".")[0] in SETTING_KEYS})


def run_name(row: Mapping[str, object]) -> str:
    """model/acceptance/tree/settings, such as "llamagen/lantern/static/k100-d0.03"; the drafter is named if it
    is not EAGLE's; "llamagen/ar" for the baseline."""
    if is_baseline(row):
        return f"{row['model']}/ar"
    short = {"k": "k", "delta": "d", "lam": "l"} | {key: key.split(".")[-1] for key in config_keys([row])}
    held = {name: row[key] for key, name in short.items() if row.get(key) is not None}
    values = [value if isinstance(value, str) else f"{name}{value:.12g}" for name, value in held.items()]
    drafter = [str(row["drafter"])] if row.get("drafter") not in (None, "eagle", row["acceptance"]) else []
    settings = ["-".join(values)] if values else []
    return "/".join([str(row["model"]), str(row["acceptance"]), *drafter, str(row["tree"]), *settings])


def is_baseline(row: Mapping[str, object]) -> bool:
    """Whether a row, or a pipeline's description, is plain AR decoding."""
    return row.get("drafter") == NoDrafter.name


@dataclass(frozen=True)
class RowIdentity:
    """What identifies the rows of a run, beside the keys that a pipeline describes itself by."""

    fingerprint: str  # of the pipeline's whole configuration
    plain_fingerprint: str  # of what plain decoding is built from
    protocol: Mapping[str, object] = field(default_factory=dict)  # keys that all rows of a run share
    settings: Mapping[str, object] = field(default_factory=dict)  # keys of the method's drafter and tree
    notes: Mapping[str, object] = field(default_factory=dict)  # keys of the method's row: its preset, its drafter


def append_rows(path: str | Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Appends one JSON object a line. Each line is a single write to a file opened for appending, so that lines of
    several processes do not mix; a line left incomplete by a crash is ended first."""
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b", buffering=0, opener=unlinked) as file:
            if file.seek(0, os.SEEK_END) and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                file.write(b"\n")
            for row in rows:
                line = (encode(row) + "\n").encode()
                if os.write(file.fileno(), line) < len(line):  # the disk has room for a part of the line only
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a file written by append_rows, without lines that a crash left incomplete."""
    rows = []
    for line in bytes_of(Path(path)).decode("utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def read_summary(folder: Path) -> list[Row]:
    """The rows of a run folder's last run, none where its summary is missing or damaged."""
    return list(read_object(folder / SUMMARY).values())


def merge_rows(rows: Iterable[Row]) -> list[Row]:
    """One row per setting, baselines first. A method keeps its last row. Every point of a sweep times the baseline, so
    its rows timed alike are merged: timings are averaged, numbers of images added, those beside a method once, since
    points that repeat it find them on record; other figures come from the first row that has them."""
    groups, rows = dict[tuple, list[tuple[str, Row]]](), [*rows]
    for row, behind in zip_longest(rows, rows[1:]):
        beside = behind if behind and not is_baseline(behind) else row  # a point's method stands behind its baseline
        found_when_timed = [row.get(key) for key in TIMED_AS] if is_baseline(row) else []
        groups.setdefault((setting_id(row), *found_when_timed), []).append((setting_id(beside), row))
    merged = [_merge_baseline(group) if is_baseline(group[0][1]) else group[-1][1] for group in groups.values()]
    return sorted(merged, key=lambda row: not is_baseline(row))


TIMED_AS = ("cuda_graphs", "tokenizer_hash")  # on which times depend beside the setting


def _merge_baseline(group: list[tuple[str, Row]]) -> Row:
    """group: each row with the id of the method that it was timed beside."""
    rows, timed = [row for _, row in group], dict(group).values()
    keys = dict.fromkeys(key for row in rows for key in row)
    found = {key: next((row[key] for row in rows if row.get(key) is not None), None) for key in keys}
    bounded = next((row for row in rows if row.get("speedup_low") is not None), rows[0])
    found["warnings"] = bounded.get("warnings")  # of the row whose bounds are shown
    for figure in figures():
        values = [row[figure.key] for row in timed if row.get(figure.key) is not None]
        if values and figure.merged:
            found[figure.key] = sum(values) / len(values) if figure.merged == "mean" else sum(values)
    return found


def encode(value: object, indent: int | None = None) -> str:
    """JSON in which a number that is not finite is null."""
    return json.dumps(json.loads(json.dumps(value, default=dict), parse_constant=lambda _: None), indent=indent)
