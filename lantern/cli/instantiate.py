"""Objects built from a config once a process: a target, metrics or images that the points of a sweep or the parts of a
training run share."""

from functools import lru_cache

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf


def shared(config: DictConfig) -> object:
    """The same object for equal configs."""
    return _built(OmegaConf.to_yaml(config, resolve=True))


@lru_cache
def _built(config: str) -> object:
    return instantiate(OmegaConf.create(config))
