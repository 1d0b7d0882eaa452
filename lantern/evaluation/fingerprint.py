"""What a row's figures were measured with: hashes of what was read, versions, device; and what a run was asked for."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from lantern.evaluation.provenance import device_name, git_state
from lantern.evaluation.records import RECORDS, code_hash, key_of
from lantern.evaluation.rows import SUMMARY, Row, encode
from lantern.runtime.files import replace_text
from lantern.types import Target

FINISHED = "finished.json"
PLAIN = ("model", "sampling", "dtype", "device", "compile", "tf32")  # what plain decoding is built from
DECODING = (*PLAIN, "drafter", "tree", "acceptance", "verification", "loop")
PASSING = ("paths", "tracking", "sweep", "budget", "shards", "shard", "published", "reproduce")  # changes no figure


def fingerprint(config: Mapping[str, object], parts: Sequence[str] = DECODING) -> str:
    """Ten hex digits of all that a pipeline is built from, settings without a row key of their own included."""
    return digest({name: config.get(name) for name in parts})


def request(config: Mapping[str, object], *hashes: str | None) -> str:
    """A hash of everything that a run was asked for, of what it read (the weights, the prompts) and of the code."""
    return key_of(digest({name: value for name, value in config.items() if name not in PASSING}), *hashes)


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:10]


def protocol(target: Target, prompts: Sequence[str], split: str) -> Row:
    """The keys that are the same for all rows of a run."""
    weight = target.embed_weight
    return {
        "target_hash": target.weights_hash,
        "prompts_hash": digest(list(prompts)),
        "split": split,
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": device_name() if weight.device.type == "cpu" else torch.cuda.get_device_name(weight.device),
        "threads": torch.get_num_threads(),
        "compile": target.compiles,
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "code": code_hash(),
        "revision": git_state()["revision"],
        "torch": torch.__version__,
    }


def is_finished(folder: Path, asked: str) -> bool:
    """Whether a folder already holds the answer to this request."""
    path = folder / FINISHED
    if not (path.is_file() and (folder / SUMMARY).is_file()):
        return False
    return json.loads(path.read_text()).get("request") == asked


def mark_finished(folder: Path, asked: str) -> None:
    """Written last: a run that was killed before is not finished."""
    replace_text(folder / FINISHED, encode({"request": asked}) + "\n")


def record_files(folder: Path) -> list[Path]:
    """The records of a run or sweep folder: its own, those of its points or shards, and of the AR images they share."""
    return [path for pattern in ("", "*/", "*/*/") for path in sorted(folder.glob(f"{pattern}{RECORDS}"))]
