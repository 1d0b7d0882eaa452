"""What a configuration read from a file may build: the names that the shipped conf/ builds, and those in the folder
that the user gave as --config-dir on this command line. Such files are passed around; building any name would run
whatever code their author chose."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import yaml
from hydra.core.hydra_config import HydraConfig

from lantern.errors import LanternError
from lantern.runtime.home import CONFIG_FOLDER

OTHER_COMMANDS = frozenset({  # parts of conf/ that evaluate.py does not read: what they build may write files
    "callbacks", "captions", "data", "features", "format", "hydra", "launch", "logger", "task", "trainer",
    "train.yaml", "export.yaml",
})  # fmt: skip
GETTER = "hydra.utils.get_method"  # returns what its `path` names, uncalled
POSITIONAL = "_args_"  # no yaml of conf/ uses it, and it would give GETTER its path


def check_known(config: object, source: object) -> None:
    """Raises LanternError unless all that a plain configuration builds, at any depth, has a known name. Nothing is
    imported. source: what the configuration was read from."""
    known = known_names()
    for place, name in builds(config):
        if not isinstance(name, str) or name not in known:
            raise LanternError(
                f"{source} would build {name!r} at {place}, which no yaml of conf/ builds; if you trust it, name it in "
                "a yaml of your own and give that yaml's folder by --config-dir"
            )


def builds(node: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Each place of a plain configuration at which hydra.utils.instantiate would import something, with its name. An
    interpolation counts as one, since what it will name is not known."""
    if isinstance(node, Mapping):
        if node.get("_target_") == GETTER:
            yield f"{place}.path", node.get("path")
        for key, value in node.items():
            inner = f"{place}.{key}" if place else str(key)
            if key in ("_target_", POSITIONAL):
                yield inner, value
            else:
                yield from builds(value, inner)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from builds(value, f"{place}[{index}]")
    elif isinstance(node, str) and "${" in node:
        yield place, node


def known_names() -> frozenset[str]:
    """The names that the shipped configuration and the user's own folder build."""
    folders = [CONFIG_FOLDER]
    if HydraConfig.initialized():
        sources = HydraConfig.get().runtime.config_sources
        folders += [Path(source.path) for source in sources if source.provider == "command-line"]
    return frozenset().union(*map(_named_in, folders))


@lru_cache
def _named_in(folder: Path) -> frozenset[str]:
    paths = [path for path in sorted(folder.rglob("*.yaml")) if not OTHER_COMMANDS & {*path.relative_to(folder).parts}]
    found = map(_named_by, paths)
    return frozenset(name for names in found for name in names if isinstance(name, str) and "${" not in name)


def _named_by(path: Path) -> list[object]:
    try:
        return [name for _, name in builds(yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader))]
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return []  # Hydra reports those that the command reads
