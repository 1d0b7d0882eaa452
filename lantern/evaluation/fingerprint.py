"""Hashes that identify what was measured: of a pipeline's configuration, for its row; of a whole request, by which a
finished run is recognised."""

import hashlib
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lantern.errors import LanternError, unwritable
from lantern.evaluation.provenance import PROVENANCE, code_hash, device_name, git_state
from lantern.evaluation.records import RECORDS, key_of
from lantern.evaluation.rows import Row, encode, read_summary
from lantern.runtime.files import read_object, replace_text
from lantern.types import Target

log = logging.getLogger(__name__)
FINISHED = "finished.json"
PLAIN = ("model", "sampling", "dtype", "device", "compile", "tf32")  # what plain decoding is built from
DECODING = (*PLAIN, "drafter", "tree", "acceptance", "verification", "loop")
MAKING = (*DECODING, "prompts", "split", "seed", "batch_size")  # what determines images and their records
PASSING = (  # changes no figure
    "paths", "tracking", "sweep", "budget", "shards", "shard", "lease_s", "published", "reproduce",
)  # fmt: skip


def config_fingerprint(config: Mapping[str, object], parts: Sequence[str] = DECODING) -> str:
    """Ten hex digits of the configuration that a pipeline is built from, settings without a row key included."""
    return digest(_numberless({name: config.get(name) for name in parts}))


def request_hash(config: Mapping[str, object], hashes: Mapping[str, str | None]) -> str:
    """A hash of a run's configuration, of what it read (weights and prompts, by name) and of the code."""
    asked = _numberless({name: value for name, value in config.items() if name not in PASSING})
    return key_of(digest(asked), digest(hashes))


def choice_key(config: Mapping[str, object], hashes: Mapping[str, str | None], batch_size: int) -> str:
    """A hash of what decides the shape that tree=auto finds for so many images at once: neither sizes nor metrics."""
    return key_of(config_fingerprint(config), digest(_without_metrics(hashes)), batch_size)


def _without_metrics(hashes: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: value for name, value in hashes.items() if not name.startswith("metrics.")}


def _numberless(config: Any) -> Any:
    """The configuration with every `device` by its kind: cuda:1 and cuda are one device to whoever reads a record."""
    if isinstance(config, Mapping):
        return {
            name: value.split(":")[0] if name == "device" and isinstance(value, str) else _numberless(value)
            for name, value in config.items()
        }
    return [_numberless(part) for part in config] if isinstance(config, list | tuple) else config


def digest(value: object) -> str:
    """Ten hex digits of the SHA-256 of a value's JSON, its keys sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:10]


def target_hashes(target: Target) -> tuple[str, str | None]:
    """Hashes of a target's weights and, where it has weights of its own, of its text encoder's."""
    return target.weights_hash, getattr(getattr(target, "conditioner", None), "weights_hash", None)


def decoding_hashes(target: Target) -> dict[str, str | None]:
    """By name, the hashes of all that a target decodes with: target_hashes, and its codebook, among whose codes LANTERN
    finds neighbours and whose tokenizer may be of another file."""
    weights, encoder = target_hashes(target)
    return {"target": weights, "text encoder": encoder, "codebook": _values_hash(target.codebook)}


def reading_hash(target: Target, caption: str) -> str:
    """A hash of what target_hashes do not tell of a target's law: how it reads captions, by the example of one, and the
    sizes of its weights, since random ones have no hash. Nothing passes through the target itself."""
    body = getattr(target, "transformer", nn.Module())  # which, like a prefix, not every target has
    sizes = [list(weight.shape) for weight in (target.embed_weight, *body.parameters(), *body.buffers())]
    read: list[object] = [sizes, getattr(target, "prefix_len", None)]
    if hasattr(target, "prompts"):
        read += target.prompts([caption])  # token ids
    elif hasattr(target, "conditioner"):
        condition, visible = target.conditioner([caption])
        read += [list(condition.shape), str(condition.dtype), visible.tolist()]
        if not target_hashes(target)[1]:  # an encoder's values differ in their last bits between machines and batches
            read.append(_values_hash(condition))
    return digest(read)


def _values_hash(tensor: Tensor) -> str:
    values = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:12]


def protocol(target: Target, prompts: Sequence[str], split: str) -> Row:
    """The keys that are the same for all rows of a run."""
    weight = target.embed_weight
    return {
        "target_hash": target.weights_hash,
        "prompts_hash": digest(list(prompts)),
        "split": split,
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": device_name(str(weight.device)),
        "threads": torch.get_num_threads(),
        "compile": target.compiles,
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "code": code_hash(),
        "revision": git_state()["revision"],
        "torch": torch.__version__,
    }


def check_shards(folder: Path, config: Mapping[str, Any], hashes: Mapping[str, str | None]) -> None:
    """Raises LanternError if a shard below a folder was made with other code or weights (`hashes`) than this run has,
    or if all shards have other settings: their images would be made again, in silence. Warns where no shard was timed
    on a machine like this one."""
    others = {}  # of other settings
    shards = {path.parent: read_object(path) for path in sorted(folder.glob(f"*/{PROVENANCE}"))}
    shards = {place: made for place, made in shards.items() if made.get("config", {}).get("shards", 1) > 1}
    for place, made in shards.items():
        before, now = (_numberless({name: part.get(name) for name in MAKING}) for part in (made["config"], config))
        settings = [name for name in MAKING if before[name] != now[name]]
        read = [name for name, value in _without_metrics(hashes).items() if made["hashes"].get(name) != value]
        if read and not settings:
            raise _of_another(place, read)
        if settings:
            others[place] = settings
    if others and len(others) == len(shards):
        raise _of_another(*next(iter(others.items())))
    if shards and config.get("speed", {}).get("num_prompts"):
        _tell_other_machines(folder, config, {(made["device"], made["threads"]) for made in shards.values()})


def _tell_other_machines(folder: Path, config: Mapping[str, object], places: Collection[tuple[str, int]]) -> None:
    here = device_name(str(config.get("device", "auto"))), torch.get_num_threads()
    if here not in places:
        (device, threads), *_ = sorted(places)
        log.warning(
            f"the shards in {folder} timed on {device} with {threads} threads, this is {here[0]} with {here[1]}: their "
            f"images are timed again here; to use their times, measure on such a machine with OMP_NUM_THREADS={threads}"
        )


def _of_another(shard: Path, parts: Sequence[str]) -> LanternError:
    return LanternError(
        f"{shard} was made with other {', '.join(parts)} than this run has; measure it with its own, or move it out of "
        "the folder"
    )


def is_finished(folder: Path, request: str) -> bool:
    """Whether a folder holds the finished run of this request."""
    return read_object(folder / FINISHED).get("request") == request and bool(read_summary(folder))


def mark_begun(folder: Path) -> None:
    """Removes the mark of an earlier request, whose files this run replaces one by one. LanternError if it cannot."""
    try:
        (folder / FINISHED).unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(folder / FINISHED, error) from error


def mark_finished(folder: Path, request: str, overrides: Sequence[str] = ()) -> None:
    """Marks a request as finished, after everything else is written. overrides: of the command, for reproduce=."""
    replace_text(folder / FINISHED, encode({"request": request, "overrides": [*overrides]}) + "\n")


def record_files(folder: Path) -> list[Path]:
    """The records of a run or sweep folder: its own, those of its points or shards, and of the AR images they share."""
    return [path for pattern in ("", "*/", "*/*/") for path in sorted(folder.glob(f"{pattern}{RECORDS}"))]
