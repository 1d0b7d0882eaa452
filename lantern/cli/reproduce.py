"""Runs a row again: finds the configuration it was measured with, and compares the new row with it."""

import os
import re
from collections.abc import Mapping, Sequence
from math import hypot
from pathlib import Path

from lantern.errors import LanternError
from lantern.evaluation.rows import SUMMARY, Row, is_baseline, read_summary, setting_id
from lantern.identity import DECODING, PLAIN, code_hash, config_fingerprint
from lantern.reporting.table import label_rows
from lantern.runtime.files import read_object
from lantern.runtime.known_targets import check_known

INPUTS = (  # a row is reproduced where these are equal
    "target_hash",
    "tokenizer_hash",
    "drafter_hash",
    "tree",
    "prompts_hash",
    "extractor",
    "reference_hash",
    "critic_hash",
    "diversity_extractor",
    "code",
    "dtype",
    "device",
    "threads",
    "torch",
)
NETWORK = "_network"  # the end of the keys of other metrics' networks


PLACES = ("reproduce=", "paths.root=", "paths.runs=")  # settings that may stand beside a recorded run's


def check_alone(source: str, overrides: Sequence[str]) -> None:
    """Raises LanternError for settings beside a recorded run's, which would be ignored."""
    if ignored := [override for override in overrides if not override.startswith(PLACES)]:
        raise LanternError(f"reproduce={source} runs a row as it was recorded; leave {', '.join(ignored)} out")


def recorded_run(source: str) -> tuple[dict, list[Row], Path]:
    """source: a run folder, a sweep folder or a results file, with @<setting id> where it holds several methods.
    -> the configuration of that run, its rows, its folder. LanternError, with the choices, unless there is one."""
    folder, setting = _named(source)
    try:
        found = _finished_runs(folder.parent if folder.is_file() else folder)
    except OSError as error:
        raise LanternError(
            f"reproduce={source} cannot be read ({error.strerror}); give the folder of a finished run"
        ) from error
    if not found:
        raise LanternError(
            f"reproduce={source} holds no finished run; give the folder of one, with its provenance.json"
        )
    asked = {key: run for key, run in found.items() if key.startswith(setting)}
    if len(asked) != 1:
        offered = asked or found
        labels = label_rows([rows[-1] for _, rows in offered.values()])
        choice = ", ".join(f"@{key} ({label})" for key, label in zip(offered, labels, strict=True))
        raise LanternError(
            f"reproduce={source} names {len(asked)} rows; give a run folder, or a sweep folder with one of: {choice}"
        )
    ((home, rows),) = asked.values()
    record = read_object(home / "provenance.json")
    config = record.get("config")
    if not isinstance(config, dict):
        raise LanternError(f"{home / 'provenance.json'} holds no configuration; give the folder of a finished run")
    if not _is_of(record, rows[-1]):
        raise LanternError(
            f"reproduce={source}: the provenance.json in {home} is of a later run, which left no row; first start the "
            "run of the row again in that folder, by its own settings"
        )
    check_known(config, f"reproduce={source}")
    return config, rows, home


def _is_of(record: Mapping, row: Row) -> bool:
    """Whether a provenance is that of the row, and not of a run that was begun in its folder later and failed, was
    killed or was a shard. Other code may compute other fingerprints of the same configuration."""
    config, code = record["config"], row.get("code")
    if config.get("shards", 1) > 1 or config.get("study") or record.get("hashes", {}).get("code", code) != code:
        return False
    decoded = {key: config.get(key) for key in ("seed", "batch_size")}
    decoded["num_images"] = (config.get("quality") or {}).get("num_images")
    if code == code_hash():
        decoded["fingerprint"] = config_fingerprint(config, PLAIN if is_baseline(row) else DECODING)
    return all(row.get(key) in (None, value) for key, value in decoded.items())


def check_elsewhere(source: str, home: Path, folder: Path) -> None:
    """Raises LanternError for a run in the folder of the row that it makes again, whose files it would replace. home:
    the folder of that row, which source names."""
    if folder.resolve() in (home.resolve(), _named(source)[0].resolve()):
        raise LanternError(f"reproduce={source} would write over the run it repeats; give another hydra.run.dir")


def _named(source: str) -> tuple[Path, str]:
    """The path and the setting's id, empty for none. Hydra reads an @ bare, a # in quotes alone; a folder whose own
    name has one is that folder."""
    path, setting = os.path.expanduser(str(source)), ""
    if not os.path.exists(path) and (parts := re.fullmatch(r"(.+)[@#]([^/@#]*)", path)):
        path, setting = parts.groups()
    return Path(path), setting


def _finished_runs(folder: Path) -> dict[str, tuple[Path, list[Row]]]:
    """The runs in a folder or below it, by the setting of their last row."""
    found = {}
    for summary in [folder / SUMMARY, *sorted(folder.glob(f"*/{SUMMARY}"))]:
        if (summary.parent / "provenance.json").is_file() and (rows := read_summary(summary.parent)):
            found[setting_id(rows[-1])] = summary.parent, rows
    return found


def moved(config: Mapping, root: str) -> dict:
    """The configuration with the paths of this checkout in place of the recorded one's."""
    former = config.get("paths", {}).get("root")
    return _replaced(config, former, os.fspath(root)) if former else dict(config)


def _replaced(value: object, former: str, root: str) -> object:
    """A plain value with `root` for `former` wherever a text begins with that folder."""
    if isinstance(value, Mapping):
        return {key: _replaced(inner, former, root) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, former, root) for inner in value]
    is_inside = isinstance(value, str) and (value + os.sep).startswith(former + os.sep)
    return root + value[len(former) :] if is_inside else value


def compare_rows(before: list[Row], now: list[Row]) -> str:
    """A table of recorded and new figures, and a line for each input that changed."""
    old, new = before[-1], now[-1]
    inputs = [*INPUTS, *(key for key in dict.fromkeys([*old, *new]) if key.endswith(NETWORK))]
    changed = [f"{key} was {old.get(key)}, is {new.get(key)}" for key in inputs if old.get(key) != new.get(key)]
    lines = [f"{'':24} {'recorded':>12} {'now':>12}"]
    for key in [key for key in new if _is_bounded(new, key) or key == "tokens_per_step"]:
        lines.append(f"{key:24} {_show(old.get(key)):>12} {_show(new[key]):>12}  {_verdict(old, new, key)}")
    plain = " (AR)" if is_baseline(new) else ""
    return "\n".join([f"reproduced {setting_id(old)}{plain}", *lines, *(f"changed: {line}" for line in changed)])


def _is_bounded(row: Row, key: str) -> bool:
    return row.get(key) is not None and row.get(f"{key}_low") is not None


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "-"


def _verdict(old: Row, new: Row, key: str) -> str:
    if old.get(key) is None:
        return ""
    if old[key] == new[key]:
        return "equal"
    widths = [_half_width(row, key) for row in (old, new)]
    if None in widths:
        return "differs"
    is_chance = abs(new[key] - old[key]) <= hypot(*widths)  # both are estimates
    return "within the intervals" if is_chance else "outside the intervals"


def _half_width(row: Row, key: str) -> float | None:
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    return None if low is None or high is None else max(high - row[key], row[key] - low)
