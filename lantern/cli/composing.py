"""Configurations composed beside whatever Hydra program is running, and objects that are built from one once a process:
a target, metrics or images that the points of a sweep or the parts of a training run share."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict

from lantern.cli import hydra_private

VERSION_BASE = "1.3"  # as the entry points give it to @hydra.main
JOB = "hydra.job.name=lantern"  # else Hydra asks its global job for one
_held: dict[str, object] = {}  # by one_at_a_time


def composed(folder: str | Path, name: str, overrides: Sequence[str], own_folders: Sequence[str] = ()) -> DictConfig:
    """The configuration `name` of an absolute folder under overrides in Hydra's grammar, without the node hydra.

    own_folders: of the user's yamls, as by --config-dir. Raises Hydra's ConfigCompositionException for an override that
    does not fit.
    """
    config = hydra_private.load_configuration(folder, name, [*overrides, JOB], VERSION_BASE, own_folders)
    with open_dict(config):
        del config["hydra"]
    return config


def shared(config: DictConfig) -> object:
    """The same object for equal configs."""
    return _built(OmegaConf.to_yaml(config, resolve=True))


def one_at_a_time(config: DictConfig) -> object:
    """The same object for equal configs in a row. That of another config is dropped before this one is built, so that
    a sweep over models holds one."""
    key = OmegaConf.to_yaml(config, resolve=True)
    if key not in _held:
        _held.clear()
        _held[key] = instantiate(OmegaConf.create(key))
    return _held[key]


@lru_cache
def _built(config: str) -> object:
    return instantiate(OmegaConf.create(config))
