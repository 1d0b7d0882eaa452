"""Configurations as the commands compose them, and the points of a sweep."""

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import get_class
from omegaconf import DictConfig
from support.paths import CONF

SWEEPS = sorted(path.stem for path in (CONF / "sweep").glob("*.yaml") if path.stem != "recipe")  # of evaluate.py


def composed(command: str, *overrides: str) -> DictConfig:
    """What a command's own code is given."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(command, list(overrides))


def composed_with_hydra(command: str, *overrides: str) -> DictConfig:
    """The same with Hydra's part: mode, sweeper, launcher and callbacks."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(command, list(overrides), return_hydra_config=True)


def sweep_points(cfg: DictConfig, *given: str) -> list[list[str]]:
    """The overrides of every point, with those given on the command line."""
    sweeper = get_class(cfg.hydra.sweeper._target_)(**{k: v for k, v in cfg.hydra.sweeper.items() if k != "_target_"})
    axes = [f"{key}={values}" for key, values in cfg.hydra.sweeper.params.items()]
    return sweeper.split_arguments(OverridesParser.create().parse_overrides([*axes, *given]), None)[0]


def points_of(sweep: str, *given: str) -> list[list[str]]:
    """sweep_points of evaluate.py +sweep=<sweep>."""
    return sweep_points(composed_with_hydra("evaluate", f"+sweep={sweep}"), *given)
