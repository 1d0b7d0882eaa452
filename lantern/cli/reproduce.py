"""Measures a row again: replays the overrides that its run has recorded, and compares the rows. Overrides are data from
a file that is passed around; those that could name code to import are refused."""

import re
from collections.abc import Sequence
from math import hypot
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from lantern.cli.composing import composed
from lantern.cli.settings import groups_of
from lantern.data.prompts import BENCHMARKS
from lantern.errors import LanternError
from lantern.evaluation.rows import Row, is_baseline, read_summary, setting_id
from lantern.evaluation.run_folder import FINISHED
from lantern.runtime.files import is_file, read_object
from lantern.runtime.home import CONFIG_FOLDER, HOME

PLAIN_VALUES = (str, int, float, list, dict, type(None))
IMPORTING = re.compile(r"_\w+_|path")  # Hydra's keys such as _target_, and what hydra.utils.get_method imports
INPUTS = ("tree", "extractor", "diversity_extractor", "code", "dtype", "device", "threads", "torch")
INPUT_ENDS = ("_hash", "_network")  # of further keys; a row is reproduced where all inputs are equal


def replay(cfg: DictConfig, given: Sequence[str], folder: Path) -> str:
    """Runs the row of the run folder cfg.reproduce again, in this folder. given: the overrides of this command, of
    which those of paths hold for the new run, and others name recorded files again. Returns a table that compares
    the rows."""
    from lantern.cli.run_setting import run_setting

    if not str(cfg.reproduce).strip():
        raise LanternError(f"reproduce={cfg.reproduce} names no run folder; give one, or leave it out")
    home = Path(str(cfg.reproduce))
    overrides, rows = recorded_run(home)
    others = [override for override in given if override not in overrides]
    if ignored := [override for override in others if not override.startswith(("reproduce=", "paths."))]:
        raise LanternError(f"reproduce={cfg.reproduce} runs a row as it was recorded; leave {', '.join(ignored)} out")
    check_recorded(overrides, given, home)
    if folder.resolve() == home.resolve():
        raise LanternError(f"reproduce={home} would write over the run it repeats; give another hydra.run.dir")
    sources = HydraConfig.get().runtime.config_sources
    own_folders = [source.path for source in sources if source.provider == "command-line"]
    paths = [override for override in given if override.startswith("paths.")]
    config = composed(CONFIG_FOLDER, "evaluate", [*overrides, *paths], own_folders)
    row = rows[-1]
    return compare_rows(rows, run_setting(config, row["model"], folder, None, row.get("method"), overrides, home))


def recorded_run(home: Path) -> tuple[list[str], list[Row]]:
    """The overrides of a finished run and its rows."""
    overrides, rows = read_object(home / FINISHED).get("overrides"), read_summary(home)
    if not rows or not isinstance(overrides, list) or not all(isinstance(one, str) for one in overrides):
        raise LanternError(
            f"reproduce={home} holds no finished run; give the folder of one, such as a sweep's first, 0"
        )
    return overrides, rows


def check_recorded(overrides: Sequence[str], given: Sequence[str], source: str | Path) -> None:
    """Raises LanternError for a recorded override that could name code to import or a yaml outside conf/: one of a key
    such as _target_, of Hydra itself or of a group of another command, one with `..` in the name of an option, and an
    interpolation, whose value is not known; and for a file of this machine that the command does not name again:
    whoever made the run folder may have chosen it, and a report shows its lines."""
    own = OmegaConf.load(CONFIG_FOLDER / "evaluate.yaml")
    for text, override in zip(overrides, OverridesParser.create().parse_overrides([*overrides]), strict=True):
        name, value = override.key_or_group, override.value()
        key = f"{name}@{override.package or ''}"
        group, keys = re.split("[./@]", key)[0], [*re.split(r"\W+", key), *re.findall(r"'(\w+)':", repr(value))]
        is_unread = (CONFIG_FOLDER / group).is_dir() and group not in groups_of("evaluate")
        is_setting = "." in name or (name in own and not (CONFIG_FOLDER / name).is_dir())  # whose value is no yaml
        is_plain = isinstance(value, PLAIN_VALUES) and not override.is_sweep_override() and "${" not in text
        is_outside = ".." in (name if is_setting else text) or group == "hydra"
        if not is_plain or is_unread or is_outside or any(map(IMPORTING.fullmatch, keys)):
            raise LanternError(
                f"reproduce={source} records the override {text}, which a file may not give; if you trust it, give it "
                "to evaluate.py yourself"
            )
        if text in given or not isinstance(value, str):
            continue
        lists = HOME / "data" / "prompts"
        is_list = value in BENCHMARKS or (value.isidentifier() and is_file(lists / f"{value}.txt"))
        if is_file(Path(value).expanduser()) or (name == "prompts" and not is_list):
            raise LanternError(
                f"reproduce={source} reads what its folder names; if you trust it, add {text} to the command"
            )


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
