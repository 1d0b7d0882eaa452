"""The command that measures a setting again, from the overrides that Hydra recorded in its run folder."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import OmegaConf

from lantern.evaluation.rows import read_summary, setting_id
from lantern.runtime.home import program_of


def commands(points: Sequence[Path]) -> dict[str, str]:
    """A command by setting id, of the points whose overrides are recorded; where several points hold a setting, as all
    points of a sweep hold plain decoding, the last one's."""
    found: dict[str, str] = {}
    for point in points:
        command = command_of(point)
        found |= {setting_id(row): command for row in read_summary(point) if command}
    return found


def command_of(folder: Path) -> str | None:
    """`python evaluate.py …`, or the command of a wheel, as a shell reads it, for one run; None where Hydra recorded
    nothing."""
    overrides, record = (folder / ".hydra" / name for name in ("overrides.yaml", "hydra.yaml"))
    if not (overrides.is_file() and record.is_file()):
        return None
    mode, runtime = (OmegaConf.select(OmegaConf.load(record), f"hydra.{key}") for key in ("mode", "runtime"))
    single = ["hydra.mode=RUN"] if mode == "MULTIRUN" else []  # a point alone, where a preset sweeps
    given = OmegaConf.to_container(OmegaConf.load(overrides), resolve=False)  # ${…} is the run's to resolve
    return shlex.join([*program_of("evaluate.py")[1], *config_dir(runtime), *map(str, given), *single])


def config_dir(runtime: Mapping) -> list[str]:
    """--config-dir, for yamls outside the project: relative to the working folder if it was below that."""
    given = [Path(source["path"]) for source in runtime["config_sources"] if source["provider"] == "command-line"]
    inside = [path.is_relative_to(runtime["cwd"]) for path in given]
    shown = [os.path.relpath(path, runtime["cwd"]) if near else path for path, near in zip(given, inside, strict=True)]
    return [word for path in shown for word in ("--config-dir", str(path))]
