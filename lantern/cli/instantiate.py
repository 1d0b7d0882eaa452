"""Objects built from a config once a process: a target, metrics or images that the points of a sweep or the parts of a
training run share."""

from functools import lru_cache

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

_held: dict[str, object] = {}  # by one_at_a_time


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
