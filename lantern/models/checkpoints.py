"""Weights on disk: read without executing code, checked strictly, written atomically.
A weights folder holds model.safetensors and config.json, the constructor arguments of the model."""

import argparse
import json
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lantern.errors import CheckpointError, explaining
from lantern.identity import files_hash
from lantern.models.hub import find_file
from lantern.runtime.files import replace_file
from lantern.runtime.hardware import resolve_device
from lantern.runtime.overrides import leaves

RANDOM = "random"  # in place of a checkpoint: random weights, for timing a size without its file
WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"
FOLDER_FILES = (WEIGHTS_FILE, "pytorch_model.bin")  # in order of preference
FILE_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
WRAPPER_KEYS = ("ema", "model", "module", "state_dict")  # of nested state dicts, in order of preference
UNUSED = ("codebook_used", "freqs_cis")  # buffers of released files: a training statistic, a table that is made anew
NAMES_SHOWN = 4
Shapes = dict[str, list[int]]  # by name
Made = TypeVar("Made")
Model = TypeVar("Model", bound=nn.Module)
log = logging.getLogger(__name__)


def read_weights(path: str | Path, part: str | None = None) -> dict[str, Tensor]:
    """The state dict in a .safetensors or torch file, unwrapped from WRAPPER_KEYS. Code in it is never executed.
    part: the key to take of a file that holds several, such as "model" beside "ema"."""
    content = read_file(path := Path(path))
    while isinstance(content, dict):
        keys = [key for key in WRAPPER_KEYS if isinstance(content.get(key), dict)]
        if part is not None and keys and part not in keys:
            raise CheckpointError(f"{path} holds {', '.join(keys)} and no {part}; give one of them")
        if len(keys) > 1 and part is None:
            told = "%s holds %s; %s is read; give weights=%s beside the file for the other"
            log.warning(told, path, " and ".join(keys), keys[0], keys[1])
        if not keys:
            break
        content, part = content[part or keys[0]], None
    if not isinstance(content, dict) or not content or not all(isinstance(v, Tensor) for v in content.values()):
        raise CheckpointError(f"{path} holds no state dict (names to tensors); give a file of model weights")
    return content


def read_file(path: Path) -> object:
    """The content of a .safetensors file, or what torch.save wrote."""
    if not path.is_file():
        raise CheckpointError(f"{path} is no file; give one that is there")
    remedy = "copy it again, or of a torch file that you trust save the state dict alone"
    with explaining(f"{path} holds no readable weights; code in it is never executed", remedy):
        if path.suffix == ".safetensors":
            return load_file(path)
        with torch.serialization.safe_globals([argparse.Namespace]):  # saved by training scripts: their command line
            return torch.load(path, map_location="cpu", weights_only=True)


def build_described(make: Callable[..., Made], sizes: Mapping[str, object], source: str | Path, remedy: str) -> Made:
    """make(**sizes), the arguments read from the config.json of the folder `source`."""
    with explaining(f"{source}/{CONFIG_FILE} does not describe a {make.__name__}", remedy):
        return make(**sizes)


def load_described(
    make: Callable[..., Model], sizes: Mapping[str, object], state: dict[str, Tensor], source: str | Path, remedy: str
) -> Model:
    """The model that build_described makes, with its weights."""
    model = build_described(make, sizes, source, remedy)
    load_strictly(model, state, source, remedy)
    return model


def load_strictly(model: nn.Module, state: dict[str, Tensor], source: str | Path, remedy: str) -> None:
    """Loads `state` into `model`, cast to the model's dtypes. Names and shapes must match exactly, values be finite,
    also after the cast; the CheckpointError ends with `remedy`."""
    shapes = shapes_of(model.state_dict())
    state = {name: value for name, value in state.items() if name in shapes or not name.endswith(UNUSED)}
    check_fit(differences(shapes, shapes_of(state)), source, remedy)
    model.load_state_dict(state)
    check_finite(model.state_dict(), source)


def shapes_of(state: Mapping[str, Tensor]) -> Shapes:
    return {name: list(value.shape) for name, value in state.items()}


def differences(wanted: Shapes, found: Shapes, ignored: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """What of the weights found is not as wanted, by kind. ignored: prefixes of names that do not count."""
    wanted, found = ({k: s for k, s in known.items() if not k.startswith(ignored)} for known in (wanted, found))
    listed = {
        "missing": [name for name in wanted if name not in found],
        "unexpected": [name for name in found if name not in wanted],
        "mis-shaped": [f"{k} {found[k]} instead of {s}" for k, s in wanted.items() if found.get(k, s) != s],
    }
    return {kind: names for kind, names in listed.items() if names}


def check_fit(problems: dict[str, list[str]], source: str | Path, remedy: str) -> None:
    if problems:
        listed = "; ".join(f"{kind} {shortened(names)}" for kind, names in problems.items())
        raise CheckpointError(f"{source} does not fit this model: {listed}; {remedy}")


def check_finite(state: Mapping[str, Tensor], source: str | Path) -> None:
    """The extremes of a tensor are finite only if all its values are: NaN is one of them."""
    floats = {name: value for name, value in state.items() if value.is_floating_point() and value.numel()}
    if broken := [name for name, value in floats.items() if not torch.stack(value.aminmax()).isfinite().all()]:
        raise CheckpointError(f"{source} holds NaN or infinite values in {shortened(broken)}; give other weights")


def shortened(names: list[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def weights_hash(path: str | Path) -> str:
    path = weights_file(path) if Path(path).is_dir() else Path(path)
    with explaining(f"no weights at {path}", "train the model or give the path of its weights"):
        stat = path.stat()
    return _file_hash(path, stat.st_size, stat.st_mtime_ns)


@lru_cache
def _file_hash(path: Path, size: int, changed_ns: int) -> str:
    """Reads a file once per process, though loaders, requests and sweep points all ask, and again if it has changed."""
    return files_hash([path])


def local_hash(path: object, file: object = None) -> str | None:
    """weights_hash of what a setting names: a weights file, a folder of weights or with this file; None for others."""
    if not isinstance(path, str):
        return None
    place = Path(path).expanduser()
    try:
        if isinstance(file, str) and (place / file).is_file():
            return weights_hash(place / file)
        found = place if place.is_file() and place.suffix in FILE_SUFFIXES else weights_file(place)
        return weights_hash(found) if found.is_file() else None
    except OSError:  # a text too long for a path, or a place that may not be read, of which its loader tells
        return None


def local_hashes(settings: object) -> dict[str, str]:
    """local_hash of all weights that nested settings name, by the setting's dotted name; `file` may stand beside it."""
    held = leaves(settings, lists=True)
    files = {key: held.get(f"{key.rpartition('.')[0]}.file".lstrip(".")) for key in held}
    return {key: found for key, value in held.items() if (found := local_hash(value, files[key]))}


def save_weights(folder: str | Path, state: dict[str, Tensor], config: dict) -> Path:
    """Writes config.json and the weights -> the weights file. Between old and new files there is no config.json
    for a moment: nobody reads one beside the other."""
    path = Path(folder) / WEIGHTS_FILE
    with explaining(f"cannot write weights to {path.parent}", "make room, or choose a folder you may write to"):
        tensors = {name: value.detach().cpu().clone().contiguous() for name, value in state.items()}  # unshared

        def write_weights(file: Path) -> None:
            save_file(tensors, file)
            (path.parent / CONFIG_FILE).unlink(missing_ok=True)

        def write_both(described: Path) -> None:
            described.write_text(json.dumps(config, indent=2) + "\n")
            replace_file(path, write_weights)

        replace_file(path.parent / CONFIG_FILE, write_both)
    return path


def weights_file(folder: str | Path) -> Path:
    found = (Path(folder) / name for name in FOLDER_FILES if (Path(folder) / name).is_file())
    return next(found, Path(folder) / WEIGHTS_FILE)


def load_weights(folder: str | Path) -> tuple[dict[str, Tensor], dict]:
    """Weights and config.json."""
    config = read_config(folder)
    return read_weights(weights_file(folder)), config


def read_config(folder: str | Path) -> dict:
    path = Path(folder) / CONFIG_FILE
    with explaining(f"{path} is no readable config", "give a folder of weights that Lantern wrote, or copy it again"):
        return dict(json.loads(path.read_bytes()))


class Expected(NamedTuple):
    """Weights that a model on the meta device would be given."""

    source: str  # a path or a Hub id
    file: str | None  # None: all safetensors of the folder
    shapes: Shapes
    ignored: tuple[str, ...] = ()  # prefixes of names that may be absent or in excess
    read: Callable[[Path], dict[str, Tensor]] = read_weights  # of a file, by the names of `shapes`


expected_weights: list[Expected] = []  # of the models that were built on the meta device, for lantern.contact


def note_expected(model: nn.Module, source: object, file: str | None = None, **given: Any) -> None:
    """Notes what a model on the meta device expects. given: as of Expected."""
    expected_weights.append(Expected(str(source), file, shapes_of(model.state_dict()), **given))


def build_model(
    build: Callable[[], Model], checkpoint: str, file: str, setting: str, remedy: str, device: torch.device,
    dtype: torch.dtype = torch.float32, read: Callable[[Path], dict[str, Tensor]] = read_weights,
) -> tuple[Model, Path | None]:  # fmt: skip
    """The model on `device`, and the file its weights were read from, if any. checkpoint, file and setting as
    find_file's, remedy as load_strictly's. Buffers that are not in the file stay uninitialised."""
    if checkpoint == RANDOM and device.type != "meta":
        return randomly_initialised(build).to(device, dtype), None
    with torch.device("meta"):
        model = build().to(dtype)
    if device.type == "meta":
        note_expected(model, checkpoint, file, read=read)
        return model, None
    path = find_file(checkpoint, file, setting)
    state = read(path)
    model = model.to_empty(device="cpu")
    load_strictly(model, state, path, remedy)
    return model.to(device), path


def load_released(
    build: Callable[[], Model], checkpoint: str, file: str, setting: str, remedy: str, device: str,
    read: Callable[[Path], dict[str, Tensor]],
) -> Model:  # fmt: skip
    """As build_model, a model that is used as it is."""
    model, _ = build_model(build, checkpoint, file, setting, remedy, resolve_device(device), read=read)
    return model.eval().requires_grad_(False)


def randomly_initialised(build: Callable[[], Model]) -> Model:
    """The model with random weights of a fixed seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()
