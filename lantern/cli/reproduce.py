"""Measures a row again: replays the overrides that its run has recorded, and compares the rows. Overrides are data from
a file that is passed around; those that could name code to import are refused."""

import os
import re
from collections.abc import Iterator, Sequence
from math import hypot
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from lantern.cli.composing import composed
from lantern.cli.settings import ABOUT
from lantern.errors import LanternError
from lantern.evaluation.records import FINISHED
from lantern.evaluation.rows import SUMMARY, Row, is_baseline, read_summary, setting_id
from lantern.reporting.table import label_rows
from lantern.runtime.files import read_object
from lantern.runtime.home import CONFIG_FOLDER

PLAIN = (str, int, float, list, dict, type(None))
IMPORTING = re.compile(r"_\w+_|path")  # Hydra's keys such as _target_, and what hydra.utils.get_method imports
INPUTS = ("tree", "extractor", "diversity_extractor", "code", "dtype", "device", "threads", "torch")
INPUT_ENDS = ("_hash", "_network")  # of further keys; a row is reproduced where all inputs are equal


def replay(cfg: DictConfig, given: Sequence[str], folder: Path) -> str:
    """Runs the row that cfg.reproduce names again, in this folder. given: the overrides of this command, of which those
    of paths hold for the new run. Returns a table that compares the rows."""
    from lantern.cli.run_setting import run_setting

    if ignored := [override for override in given if not override.startswith(("reproduce=", "paths."))]:
        raise LanternError(f"reproduce={cfg.reproduce} runs a row as it was recorded; leave {', '.join(ignored)} out")
    overrides, rows, home = recorded_run(cfg.reproduce)
    if folder.resolve() in (home.resolve(), _named(cfg.reproduce)[0].resolve()):
        raise LanternError(f"reproduce={cfg.reproduce} would write over the run it repeats; give another hydra.run.dir")
    sources = HydraConfig.get().runtime.config_sources
    own_folders = [source.path for source in sources if source.provider == "command-line"]
    paths = [override for override in given if override.startswith("paths.")]
    config = composed(CONFIG_FOLDER, "evaluate", [*overrides, *paths], own_folders)
    row = rows[-1]
    return compare_rows(rows, run_setting(config, row["model"], folder, None, row.get("method"), overrides, home))


def recorded_run(source: str) -> tuple[list[str], list[Row], Path]:
    """source: a run folder, a sweep folder or a results file, with @<setting id> where it holds several methods.
    -> the overrides of that run, its rows, its folder. LanternError, with the choices, unless there is one."""
    folder, setting = _named(source)
    try:
        found = _finished_runs(folder.parent if folder.is_file() else folder)
    except OSError as error:
        raise LanternError(
            f"reproduce={source} cannot be read ({error.strerror}); give the folder of a finished run"
        ) from error
    if not found:
        raise LanternError(f"reproduce={source} holds no finished run; give the folder of one")
    chosen = {key: run for key, run in found.items() if key.startswith(setting)}
    if len(chosen) != 1:
        offered = chosen or found
        labels = label_rows([rows[-1] for _, rows in offered.values()])
        choice = ", ".join(f"@{key} ({label})" for key, label in zip(offered, labels, strict=True))
        raise LanternError(
            f"reproduce={source} names {len(chosen)} rows; give a run folder, or a sweep folder with one of: {choice}"
        )
    ((home, rows),) = chosen.values()
    overrides = read_object(home / FINISHED).get("overrides")  # absent where a later run was begun and not finished
    if not isinstance(overrides, list) or not all(isinstance(one, str) for one in overrides):
        raise LanternError(
            f"reproduce={source}: {home / FINISHED} records no overrides; run the command of the row again instead"
        )
    check_harmless(overrides, source)
    return overrides, rows, home


def check_harmless(overrides: Sequence[str], source: str) -> None:
    """Raises LanternError for a recorded override that could name code to import or a yaml outside conf/: one of a key
    such as _target_, of Hydra itself or of a group of another command, one with `..` in the name of an option, and an
    interpolation, whose value is not known."""
    for text, override in zip(overrides, OverridesParser.create().parse_overrides([*overrides]), strict=True):
        key = f"{override.key_or_group}@{override.package or ''}"
        group, value = re.split("[./@]", key)[0], override.value()
        names = [*re.split(r"\W+", key), *_keys(value)]
        is_unread = (CONFIG_FOLDER / group).is_dir() and group not in ABOUT["evaluate"]
        is_outside = "." not in override.key_or_group and ".." in text
        is_plain = isinstance(value, PLAIN) and not override.is_sweep_override() and "${" not in text
        if not is_plain or is_unread or is_outside or group == "hydra" or any(map(IMPORTING.fullmatch, names)):
            raise LanternError(
                f"reproduce={source} records the override {text}, which a file may not give; if you trust it, give it "
                "to evaluate.py yourself"
            )


def _keys(value: object) -> Iterator[str]:
    """All keys of a plain value, at any depth."""
    if isinstance(value, dict):
        yield from map(str, value)
        value = [*value.values()]
    for inner in value if isinstance(value, list) else ():
        yield from _keys(inner)


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
        if rows := read_summary(summary.parent):
            found[setting_id(rows[-1])] = summary.parent, rows
    return found


def compare_rows(before: list[Row], now: list[Row]) -> str:
    """A table of recorded and new figures, and a line for each input that changed."""
    old, new = before[-1], now[-1]
    inputs = [*INPUTS, *(key for key in dict.fromkeys([*old, *new]) if key.endswith(INPUT_ENDS))]
    changed = [key for key in inputs if old.get(key) != new.get(key)]
    lines = [f"{'':24} {'recorded':>12} {'now':>12}"]
    for key, value in new.items():
        if value is not None and (new.get(f"{key}_low") is not None or key == "tokens_per_step"):
            lines.append(f"{key:24} {_show(old.get(key)):>12} {_show(value):>12}  {_verdict(old, new, key)}")
    told = [f"changed: {key} was {old.get(key)}, is {new.get(key)}" for key in changed]
    plain = " (AR)" if is_baseline(new) else ""
    return "\n".join([f"reproduced {setting_id(old)}{plain}", *lines, *told])


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "-"


def _verdict(old: Row, new: Row, key: str) -> str:
    if old.get(key) is None:
        return ""
    if old[key] == new[key]:
        return "equal"
    if any(row.get(f"{key}_{end}") is None for row in (old, new) for end in ("low", "high")):
        return "differs"
    widths = [max(row[f"{key}_high"] - row[key], row[key] - row[f"{key}_low"]) for row in (old, new)]
    is_chance = abs(new[key] - old[key]) <= hypot(*widths)  # both are estimates
    return "within the intervals" if is_chance else "outside the intervals"
