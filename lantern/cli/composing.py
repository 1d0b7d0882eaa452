"""Configurations composed beside whatever Hydra program is running, objects that parts of a run share, and all that
Lantern's package takes from Hydra's private interfaces."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import lru_cache, partial
from io import StringIO
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal import utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.utils import JobReturn
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict

from lantern.runtime.home import export_paths, in_home

Work = Callable[[], object]
VERSION_BASE = "1.3"  # as the entry points give it to @hydra.main
JOB = "hydra.job.name=lantern"  # else Hydra asks its global job for one
_held: dict[str, object] = {}  # by one_at_a_time


def _generation(*arguments: object, _root_: DictConfig) -> object:
    from lantern.models.hub import generation_setting  # imports the Hub's client

    return generation_setting(*arguments, _root_=_root_)


OmegaConf.register_new_resolver("generation", _generation, replace=True)


def composed(folder: str | Path, name: str, overrides: Sequence[str], own_folders: Sequence[str] = ()) -> DictConfig:
    """The configuration `name` of an absolute folder under overrides in Hydra's grammar, without the node hydra;
    hydra.compose would need, and change, the global Hydra. own_folders: of the user's yamls, as by --config-dir. Raises
    Hydra's ConfigCompositionException for an override that does not fit."""
    export_paths()
    path = utils.create_config_search_path(str(folder))
    for own in own_folders:
        path.prepend("command-line", f"file://{own}", anchor="schema")
    level = version.VersionBase.instance()  # of compatibility, which decides how defaults are read; put back afterwards
    before = level.getbase()
    level.setbase(version.Version(VERSION_BASE))
    try:
        config = ConfigLoaderImpl(path).load_configuration(name, [*overrides, JOB], RunMode.RUN, from_shell=False)
    finally:
        level.version_base = before
    with open_dict(config):
        del config["hydra"]
    expand_home(config)
    return config


def expand_home(config: DictConfig) -> None:
    """Replaces a leading ~ by the home folder in every setting that is a text. Lists are left: they may be prompts."""
    for key, value in OmegaConf.to_container(config, resolve=False).items():
        if isinstance(value, dict):
            expand_home(config[key])
        elif isinstance(value, str) and (found := in_home(value)) != value:
            config[key] = found


def shared(config: DictConfig) -> object:
    """The same object for equal configs."""
    return _built(OmegaConf.to_yaml(config, resolve=True))


@lru_cache
def _built(config: str) -> object:
    return instantiate(_literal(OmegaConf.to_container(OmegaConf.create(config))))


def built(config: DictConfig) -> object:
    """Hydra's instantiate, which resolves texts twice: an escaped ${ is escaped again, for the second time."""
    plain = OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else None
    return instantiate(_literal(plain) if "${" in str(plain) else config)


def _literal(plain: object) -> Any:
    return OmegaConf.create(json.loads(json.dumps(plain).replace("${", 6 * "\\" + "${")))


def one_at_a_time(config: DictConfig) -> object:
    """The same object for equal configs in a row, another config's dropped before it: a sweep over models holds one."""
    key = OmegaConf.to_yaml(config, resolve=True)
    if key not in _held:
        _held.clear()
        _held[key] = built(config)
    return _held[key]


@contextmanager
def holding(*made: tuple[DictConfig, object]) -> Iterator[None]:
    """Within it, one_at_a_time gives these objects, which are there already, for their configs."""
    _held.clear()
    _held.update((OmegaConf.to_yaml(config, resolve=True), given) for config, given in made)
    try:
        yield
    finally:
        _held.clear()


@contextmanager
def reporting_by(report: Callable[[Callable[[Work], object], Work], object]) -> Iterator[None]:
    """Within it, Hydra runs its work by report(its own function, work); that function prints errors and ends the
    program. Above an error that is one sentence Hydra prints no overrides."""
    hydras_own, value = utils.run_and_report, vars(JobReturn)["return_value"]
    utils.run_and_report = lambda work: report(hydras_own, work)
    JobReturn.return_value = value.getter(partial(_value, value.fget))  # type: ignore[method-assign]
    try:
        yield
    finally:
        utils.run_and_report, JobReturn.return_value = hydras_own, value  # type: ignore[method-assign]


def _value(hydras_own: Callable[[JobReturn], object], point: JobReturn) -> object:
    with redirect_stderr(StringIO()) if isinstance(error_of(point), CompactHydraException) else nullcontext():
        return hydras_own(point)


def error_of(point: JobReturn) -> BaseException:
    """What a failed point of a sweep ended with; its return_value would raise it."""
    return point._return_value
