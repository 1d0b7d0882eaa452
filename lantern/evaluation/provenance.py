"""Where a result came from: command, configuration, code, versions, device and the hashes of everything it read."""

import hashlib
import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import torch

from lantern.runtime.cores import usable_cores
from lantern.runtime.files import replace_text
from lantern.runtime.hardware import vector_instructions
from lantern.runtime.source import code_of

PACKAGES = ("torch", "pytorch-lightning", "hydra-core", "transformers", "datasets", "torch-fidelity", "wandb")
PROVENANCE = "provenance.json"
PACKAGE = Path(__file__).resolve().parents[1]


def write_provenance(folder: str | Path, config: dict, hashes: Mapping[str, str | None]) -> Path:
    """Writes provenance.json into a folder, atomically. hashes: of data and weights, by name.

    Raises LanternError if the folder cannot be written.
    """
    path = Path(folder) / PROVENANCE
    record = {
        "argv": sys.argv,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": git_state(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "device": device_name(str(config.get("device", "auto"))),
        "threads": torch.get_num_threads(),
        "hashes": hashes,
        "config": config,
    }
    replace_text(path, json.dumps(record, indent=2, default=str) + "\n")
    return path


@lru_cache
def code_hash(package: Path = PACKAGE) -> str:
    """Twelve hex digits of the SHA-256 of a package's syntax trees, comments and docstrings left out: a changed program
    reuses no record, a changed comment all of them."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\n{code_of(path.read_text('utf-8'))}\n".encode())
    return digest.hexdigest()[:12]


def git_state() -> dict[str, object]:
    """The git revision of this code and whether files differ from it; None for both outside a git checkout."""
    revision = _git("rev-parse", "HEAD")
    return {"revision": revision, "dirty": None if revision is None else bool(_git("status", "--porcelain"))}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def device_name(device: str = "auto") -> str:
    """The name of the accelerator that a setting `device` means, or the processor's with its usable cores and its
    vector instructions."""
    if device.startswith(("auto", "cuda")) and torch.cuda.is_available():
        return torch.cuda.get_device_name(None if device == "auto" else device)
    return f"{_processor()} ({len(usable_cores())} cores, {vector_instructions()})"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
