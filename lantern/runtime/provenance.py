"""What produced a result, kept beside it as provenance.json: command, configuration, versions, device and hashes."""

import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from lantern.runtime.files import read_object, replace_text
from lantern.runtime.hardware import device_name
from lantern.runtime.home import PACKAGE

PROVENANCE = "provenance.json"
PACKAGES = ("torch", "pytorch-lightning", "hydra-core", "transformers", "datasets", "torch-fidelity", "wandb")
MEASURED = (".", "../conf", "../data/weights")  # from PACKAGE: what a result depends on, and no page that shows it


def write_provenance(
    folder: str | Path, config: dict, hashes: Mapping[str, str | None], command: str | None = None
) -> Path:  # fmt: skip
    """Writes provenance.json, atomically. hashes: of data and weights, by name; command: of this run alone."""
    path = Path(folder) / PROVENANCE
    record = {
        "argv": sys.argv,
        "command": command,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": git_state(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        **machine(config),
        "hashes": hashes,
        "config": config,
    }
    replace_text(path, json.dumps(record, indent=2, default=str) + "\n")
    return path


def read_provenance(folder: Path) -> dict[str, Any]:
    """What write_provenance has written to a folder; empty where that is missing or, with a warning, damaged."""
    return read_object(folder / PROVENANCE)


def git_state() -> dict[str, object]:
    """The git revision of this code, and whether code, settings or weights differ from it; both None without git."""

    def said(*words: str) -> str:
        git = ["git", "-C", str(PACKAGE), *words]
        return subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        return {"revision": said("rev-parse", "HEAD"), "dirty": bool(said("status", "--porcelain", "--", *MEASURED))}
    except (OSError, subprocess.SubprocessError):
        return {"revision": None, "dirty": None}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine(config: Mapping[str, object]) -> dict[str, object]:
    """The properties of this machine on which this configuration's times depend."""
    return {"device": device_name(str(config.get("device", "auto"))), "threads": torch.get_num_threads()}
