"""What a run folder and its cache hold of finished work, piece by piece with its versions, so that work made twice is
counted; and the results by which two runs are compared."""

import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from lantern.data.cached_table import checksum, is_complete
from lantern.evaluation.records import RECORDS, timings_before
from lantern.evaluation.rows import SUMMARY, Row, encode, read_rows, read_summary
from lantern.identity import digest
from lantern.models.checkpoints import weights_file, weights_hash

TIMED = re.compile(  # keys of rows that differ from run to run
    r".*_(ms|s)|(end_to_end_)?speedup.*|overhead|other_cores|retimed|warnings|revision|threads"
)
TASK = "drafter"
Work = Mapping[str, frozenset[str]]  # the versions of each finished piece


def finished_work(folder: Path, shards: int, group_size: int) -> Work:
    """Timed images on record and those of whole groups, the grain at which images are made; shards of tables that match
    their checksums; the steps before the last whole checkpoint."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, version in (*_images(folder, shards, group_size), *_tables(folder), *_steps(folder)):
        found[name].add(version)
    return {name: frozenset(versions) for name, versions in found.items()}


def made_twice(before: Work, after: Work) -> list[str]:
    """The pieces that were finished before, and of which there is another version since."""
    return [name for name, versions in before.items() if after.get(name, versions) - versions]


def _images(folder: Path, shards: int, group_size: int) -> Iterator[tuple[str, str]]:
    lines = [line for path in sorted(folder.rglob(RECORDS)) for line in read_rows(path)]
    groups = {id(line): _group(line, shards, group_size) for line in lines}
    sizes = Counter(group for group, _ in {(groups[id(line)], _number(line)) for line in lines})
    for line in lines:
        if line["part"] == "speed" or sizes[groups[id(line)]] == group_size:
            name = f"{line['part']} {line['key']} {line['prompt']} {line['copy']} {timings_before(line)}"
            yield name, digest({key: value for key, value in line.items() if key != "image"})


def _group(line: Row, shards: int, group_size: int) -> tuple[object, ...]:
    """What tells the group of images that a line's was made in from others."""
    number = _number(line)
    return line["part"], line["key"], number % shards, number // shards // group_size


def _number(line: Row) -> int:
    """The number of a line's image, with which its file name begins."""
    return int(Path(line["image"]).name.split("-")[0])


def _tables(folder: Path) -> Iterator[tuple[str, str]]:
    for path, matches in table_files(folder).items():
        if matches:
            state = path.stat()
            yield f"table {path.relative_to(folder)}", f"{state.st_ino} {state.st_ctime_ns}"


def table_files(folder: Path) -> dict[Path, bool]:
    """The files of all cached tables, and whether they match their checksums: of a shard all, which is made again as a
    whole."""
    found: dict[Path, bool] = {}
    records = [path for path in sorted(folder.rglob("shard.json")) if not path.parent.name.startswith(".")]  # finished
    for record in records:
        shard, names = record.parent, json.loads(record.read_text())["files"]
        found |= dict.fromkeys((shard / name for name in names), is_complete(shard))
    return found


def _steps(folder: Path) -> Iterator[tuple[str, str]]:
    """The version of a step says how often it was made."""
    logged: Counter[int] = Counter()
    for path in folder.rglob("metrics*.csv"):
        rows = csv.DictReader(path.read_text(errors="replace").splitlines())
        logged.update({int(row["step"]) for row in rows if row.get("train/loss") and row["step"]})
    saved = saved_steps(folder)
    yield from ((f"step {step}", str(times)) for step, times in logged.items() if step < saved)


def saved_steps(folder: Path) -> int:
    """The steps that the last whole checkpoint below a folder has."""
    saved = next(folder.rglob("checkpoints/latest.ckpt"), None)
    return torch.load(saved, weights_only=True)["global_step"] if saved else 0


def results(folder: Path) -> Row:
    """Weights, tokens and quality figures below a folder: equal after equal runs, however often they were stopped."""
    lines = [line for path in sorted(folder.rglob(RECORDS)) for line in read_rows(path)]
    images = sorted({digest([line[key] for key in ("method", "part", "prompt", "copy", "tokens")]) for line in lines})
    rows = [row for path in sorted(folder.rglob(SUMMARY)) for row in read_summary(path.parent)]
    figures = [{key: value for key, value in row.items() if not TIMED.fullmatch(key)} for row in rows]
    tables = {str(path.relative_to(folder)): checksum(path) for path in table_files(folder) if path.is_file()}
    exported = [path for path in sorted(folder.rglob(TASK)) if weights_file(path).is_file()]
    weights = {str(path.relative_to(folder)): weights_hash(path) for path in exported}
    found = {"weights": weights, "images": images, "rows": figures, "tables": tables}
    return json.loads(encode(found))
