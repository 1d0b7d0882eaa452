"""All that Lantern takes from Hydra's private interfaces, in one file, with a test that names each of them: a release
of Hydra that lacks one fails there."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hydra import version
from hydra._internal import utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.utils import JobReturn
from hydra.types import RunMode
from omegaconf import DictConfig

if TYPE_CHECKING:
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper as BasicSweeper

Work = Callable[[], object]


def __getattr__(name: str) -> object:
    """BasicSweeper, imported when it is asked for: Hydra executes its module anew when it looks for plugins."""
    if name == "BasicSweeper":
        from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

        return BasicSweeper
    raise AttributeError(name)


def load_configuration(
    folder: str | Path, name: str, overrides: Sequence[str], version_base: str, own_folders: Sequence[str] = ()
) -> DictConfig:
    """A configuration with the node hydra. hydra.compose would need, and change, the global Hydra."""
    path = utils.create_config_search_path(str(folder))
    for own in own_folders:
        path.prepend("command-line", f"file://{own}", anchor="schema")
    with _version_base(version_base):
        return ConfigLoaderImpl(path).load_configuration(name, [*overrides], RunMode.RUN, from_shell=False)


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


@contextmanager
def reporting_by(report: Callable[[Callable[[Work], object], Work], object]) -> Iterator[None]:
    """Within it, Hydra runs its work by report(its own function, work); that function prints errors and ends the
    program."""
    hydras_own = utils.run_and_report
    utils.run_and_report = lambda work: report(hydras_own, work)
    try:
        yield
    finally:
        utils.run_and_report = hydras_own


def error_of(point: JobReturn) -> BaseException:
    """What a failed point of a sweep ended with; its return_value would raise it."""
    return point._return_value
