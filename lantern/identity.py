"""Every id and hash of the project, twelve hex digits of a SHA-256: of files, programs, settings, runs and images."""

import ast
import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lantern.runtime.files import file_stats, is_file
from lantern.runtime.hardware import device_name
from lantern.runtime.overrides import leaves
from lantern.runtime.provenance import PACKAGES, git_state, machine
from lantern.types import Target, reader_of
from lantern.version import __version__

DIGITS = 12  # older files hold 10 or 16 digits, of the same hashes
BLOCK = 1 << 20  # bytes of a file read at once
SAMPLED = 4096
VERSIONED = {name.removesuffix("-core").replace("-", "_") for name in PACKAGES} | sys.stdlib_module_names
PACKAGE = Path(__file__).resolve().parent
INSTALLED = {"site-packages", "dist-packages"}  # folders of packages that are not the user's own work
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PLAIN_DECODING = ("model", "sampling", "dtype", "device", "compile", "tf32")  # what plain decoding is built from
READING = ("acceptance", "verification", "tree", "sampling")  # parts of one's own whose settings may name files
DECODING = (*PLAIN_DECODING, "drafter", "tree", "acceptance", "verification")
# what changes no figure
NOT_IN_FINGERPRINT = ("paths", "tracking", "sweep", "budget", "shards", "shard", "optimized_metric")


def digest(value: object) -> str:
    """Of a value's JSON, its keys sorted."""
    return bytes_hash([json.dumps(value, sort_keys=True, default=str).encode()])


def bytes_hash(parts: Iterable[Any]) -> str:
    """Of bytes or buffers, one after the other."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()[:DIGITS]


def files_hash(paths: Iterable[str | Path]) -> str:
    def blocks() -> Iterator[bytes]:
        for path in paths:
            with Path(path).open("rb") as file:
                yield from iter(partial(file.read, BLOCK), b"")

    return bytes_hash(blocks())


def file_hash_of(name: object) -> str | None:
    """The hash of the file that a text or path names; None where it names none."""
    place = Path(name).expanduser() if isinstance(name, Path) or (isinstance(name, str) and name.strip()) else None
    return files_hash([place]) if place is not None and is_file(place) else None


def tensor_hash(tensor: Tensor) -> str:
    return bytes_hash([_bytes_of(tensor)])


def state_hash(module: nn.Module) -> str:
    """Of the names and values of all weights, whatever file they came from."""
    state = sorted(module.state_dict().items())
    return bytes_hash(part for name, value in state for part in (name.encode(), _bytes_of(value)))


def sampled_hash(weights: Mapping[str, Tensor]) -> str:
    """Of the names and shapes of a model's weights in memory and of some SAMPLED values of each, evenly spaced: less
    than a second for 7B parameters, wherever they came from. Values are rounded to bfloat16, so that a model has one
    hash in float32 and bfloat16. A change of single values may be missed."""

    def parts() -> Iterator[Any]:
        for name, weight in sorted(weights.items()):
            step = max(1, weight.numel() // SAMPLED) | 1  # odd: not one column of a matrix alone
            sample = weight.detach().reshape(-1)[::step]
            yield f"{name} {list(weight.shape)}".encode()
            yield _bytes_of(sample.to(torch.bfloat16) if sample.is_floating_point() else sample)

    return bytes_hash(parts())


def _bytes_of(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()


@lru_cache
def code_hash(package: Path = PACKAGE) -> str:
    """Of a package's syntax trees without comments and docstrings, so that a change of these reuses all records."""
    named = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in sorted(package.rglob("*.py"))}
    return bytes_hash(f"{name}\n{code_of(source)}\n".encode() for name, source in named.items())


def code_of(source: str) -> str:
    """The syntax tree of Python source as text, without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def user_code(config: object) -> str | None:
    """The modules outside this package that the `_target_`s of a configuration name, each with a hash of its code and
    of the user's modules that it imports, none for an installed package; None without any."""
    files = dict(place for target in set(_targets(config)) for place in _module_of(target))
    return ", ".join(f"{name} {module_hash(name, files[name])}" for name in sorted(files)) or None


def module_hash(name: str, path: Path) -> str:
    """Of the code of a module and of the user's own modules that it imports; comments and docstrings do not count."""
    return bytes_hash(code_of(file.read_text("utf-8")).encode() for file in sorted(_with_imports(name, path)))


def _targets(config: object) -> Iterator[str]:
    if isinstance(config, Mapping):
        named = (config.get("_target_"), config.get("path"))  # hydra.utils.get_method has a path
        yield from (text for text in named if isinstance(text, str))
        config = list(config.values())
    if isinstance(config, list | tuple):
        for part in config:
            yield from _targets(part)


def _module_of(target: str) -> list[tuple[str, Path]]:
    """The name and file of the module that holds a class or function. Empty for this package (code_hash covers it), for
    packages whose version is recorded, and for missing modules, about which instantiate complains."""
    names = target.split(".")
    if names[0] in VERSIONED:
        return []
    for count in range(len(names) - 1, 0, -1):
        try:
            spec = importlib.util.find_spec(".".join(names[:count]))
        except Exception:  # of a parent package, which is imported; instantiate tells of it
            continue
        if spec and spec.origin and spec.origin.endswith(".py"):
            path = Path(spec.origin).resolve()
            return [] if path.is_relative_to(PACKAGE) else [(spec.name, path)]
    return []


def _with_imports(name: str, path: Path) -> set[Path]:
    """A module's file and those that it imports, and they in turn, found on sys.path outside of what is installed."""
    if INSTALLED & set(path.parts):
        return {path}
    homes = [home for home in {Path(place).resolve() for place in sys.path} if not INSTALLED & set(home.parts)]
    found, waiting = set[Path](), [(name, path)]
    while waiting:
        name, path = waiting.pop()
        if path in found or path.is_relative_to(PACKAGE):
            continue
        found.add(path)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for other in _imports(path, package):
            if other.split(".")[0] in VERSIONED:
                continue
            stems = [home / other.replace(".", "/") for home in homes]
            files = [file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py")]
            waiting += [(other, file) for file in files if file.is_file()]
    return found


def _imports(path: Path, package: str) -> Iterator[str]:
    """The dotted names that a file imports; of `from a import b` both a and a.b, which may be a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{each.name}" for each in node.names)


def image_key(*parts: object) -> str:
    """Of what determines an image, this package's code and torch's version included."""
    return digest([*parts, code_hash(), torch.__version__])


def config_fingerprint(config: Mapping[str, object], parts: Sequence[str] = DECODING) -> str:
    """Of a pipeline's configuration, with settings that have no row key and code of the user's own."""
    read = {name: config.get(name) for name in parts}
    files = named_files({name: read.get(name) for name in READING})
    return digest([without_device_index(read), user_code(read), *([files] if files else [])])


def named_files(settings: object) -> dict[str, str]:
    """By dotted name the hashes of the files that nested settings name: an edited file is another setting."""
    return {name: found for name, value in leaves(settings, lists=True).items() if (found := file_hash_of(value))}


def named_folders(settings: object, setting: str) -> dict[str, str]:
    """The same of the folders that `setting` names, without reading them: of names, sizes and times of their files."""
    found = {}
    for name, value in leaves(settings).items():
        if setting in name.split(".") and isinstance(value, str) and (folder := Path(value).expanduser()).is_dir():
            files = sorted(map(str, folder.rglob("*")))
            found[f"{name} files"] = digest([files, file_stats(files)])
    return found


def request_hash(config: Mapping[str, object], hashes: Mapping[str, str | None]) -> str:
    """The id of a run: of its configuration, of what it read (weights and prompts, by name) and of the code."""
    asked = {name: value for name, value in config.items() if name not in NOT_IN_FINGERPRINT}
    return image_key(without_device_index(asked), hashes)


def choice_key(config: Mapping[str, object], hashes: Mapping[str, str | None], batch_size: int) -> str:
    """Of what decides tree=auto's shape for so many images at once: the machine too, but neither sizes nor metrics."""
    read = {name: value for name, value in hashes.items() if not name.startswith("metrics.")}
    return image_key(config_fingerprint(config), read, batch_size, machine(config))


def without_device_index(config: Any) -> Any:
    """The configuration with every `device` by its kind: records of cuda:1 and cuda are the same."""
    if isinstance(config, Mapping):
        return {
            name: value.split(":")[0] if name == "device" and isinstance(value, str) else without_device_index(value)
            for name, value in config.items()
        }
    return [without_device_index(part) for part in config] if isinstance(config, list | tuple) else config


def target_hashes(target: Target) -> tuple[str, str | None]:
    """Hashes of a target's weights and, where it has weights of its own, of its text encoder's."""
    return target.weights_hash, reader_of(target).weights_hash


def decoding_hashes(target: Target) -> dict[str, str | None]:
    """The hashes of all that a target decodes with: target_hashes, and its codebook, maybe of another file."""
    weights, encoder = target_hashes(target)
    return {"target": weights, "text encoder": encoder, "codebook": tensor_hash(target.codebook)}


def protocol(target: Target, prompts: Sequence[str], config: Mapping[str, Any]) -> dict[str, object]:
    """The keys that are the same for all rows of a run."""
    weight = target.embed_weight
    return {
        "target_hash": target.weights_hash,
        "prompts_hash": digest(list(prompts)),
        "split": config["split"],
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": device_name(str(weight.device)),
        "threads": torch.get_num_threads(),
        "compile": target.compiles,
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "version": __version__,
        "code": code_hash(),
        "user_code": user_code(config),
        "revision": git_state()["revision"],
        "torch": torch.__version__,
    }
