"""Composes a configuration beside whatever Hydra program is running: hydra.compose needs the global one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict

VERSION_BASE = "1.3"  # as the entry points give it to @hydra.main
JOB = "hydra.job.name=lantern"  # else Hydra asks its global job for one


def composed(folder: str | Path, name: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration `name` of an absolute folder under overrides in Hydra's grammar, without the node hydra.

    Raises Hydra's ConfigCompositionException for an override that does not fit.
    """
    with _version_base(VERSION_BASE):
        loader = ConfigLoaderImpl(create_config_search_path(str(folder)))
        config = loader.load_configuration(name, [*overrides, JOB], RunMode.RUN, from_shell=False)
    with open_dict(config):
        del config["hydra"]
    return config


@contextmanager
def _version_base(wanted: str) -> Iterator[None]:
    """Hydra's compatibility level, which decides how defaults are read, put back afterwards."""
    level = version.VersionBase.instance()
    before = level.getbase()
    level.setbase(version.Version(wanted))
    try:
        yield
    finally:
        level.version_base = before
