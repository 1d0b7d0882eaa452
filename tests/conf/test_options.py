"""Every option of every config group composes on its command, and all that it names can be imported; so do the samples
in sweeps/."""

import re
from collections.abc import Iterator
from itertools import zip_longest

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf
from support.configs import composed
from support.paths import CONF, ROOT

EVALUATED = ("acceptance", "budget", "drafter", "+experiment", "model", "tree", "verification")
TRAINED = ("data", "drafter/training@distil", "features", "recipe", "select_by")


def options(command: str, groups: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """An option of each group at once, until every option of every group has been."""
    files = [sorted((CONF / group.strip("+").split("@")[0]).glob("*.yaml")) for group in groups]
    for paths in zip_longest(*files):
        yield command, [f"{group}={path.stem}" for group, path in zip(groups, paths, strict=True) if path]


def named_in(node: object) -> Iterator[str]:
    """The classes and functions that a config is built from, by whatever key names them."""
    if isinstance(node, str) and re.fullmatch(r"(lantern|pytorch_lightning|torch)(\.\w+)+", node):
        yield node
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from named_in(part)


def test_all_that_conf_names_can_be_imported():
    """Catches a yaml left behind by a move or a rename."""
    configs = [OmegaConf.to_container(OmegaConf.load(path)) for path in CONF.rglob("*.yaml")]
    for name in {name for config in configs for name in named_in(config)}:
        assert callable(get_object(name)), name


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "chosen"), [*options("evaluate", EVALUATED), *options("train", TRAINED), ("export", [])]
)
def test_every_option_composes(command, chosen):
    """Catches a default that is not there; methods, sweeps and tasks have tests of their own."""
    assert composed(command, *chosen)


@pytest.mark.parametrize("metric", sorted(path.stem for path in (CONF / "metrics").glob("*.yaml")))
def test_every_metric_is_one_of_a_list(metric):
    cfg = composed("evaluate", f"metrics=[{metric}]")
    assert len(cfg.metrics) == 1
    assert all(callable(get_object(name)) for name in named_in(OmegaConf.to_container(cfg.metrics)))


SWEEPS = ROOT / "sweeps"


def test_every_point_of_the_wandb_sweep_composes():
    """Catches a setting that was renamed, and a command in which Hydra would read --key=value."""
    sweep = OmegaConf.to_container(OmegaConf.load(SWEEPS / "recipe.yaml"), resolve=False)
    assert (ROOT / sweep["program"]).is_file()
    assert sweep["command"][-1] == "${args_no_hyphens}"
    for key, axis in sweep["parameters"].items():
        for value in axis.get("values") or [axis[name] for name in ("min", "max", "value") if name in axis]:
            assert composed("train", f"{key}={value}")
    monitored = composed("train", "select_by=overlap").callbacks.best.monitor
    assert sweep["metric"]["name"].rpartition("_")[0] == monitored.rpartition("_")[0]


@pytest.mark.parametrize(("rule", "bound"), [("lantern", "acceptance.delta"), ("lantern_pp", "acceptance.lam")])
def test_every_setting_of_the_optuna_search_composes(rule, bound):
    """Without Optuna. Catches a tree, a rule or a budget that was renamed."""
    search = OmegaConf.to_container(OmegaConf.load(SWEEPS / "sweep" / "optuna.yaml"), resolve=False)
    defaults = {key.removeprefix("override /"): name for line in search["defaults"] for key, name in line.items()}
    assert defaults.pop("hydra/sweeper") == "optuna"
    axes = search["hydra"]["sweeper"]["params"]
    for tree in axes["tree"].removeprefix("choice(").rstrip(")").split(", "):
        chosen = [f"{group}={name}" for group, name in (defaults | {"tree": tree, "acceptance": rule}).items()]
        cfg = composed("evaluate", *chosen, f"{bound}=0.1", "acceptance.k=10", f"split={search['split']}")
        assert cfg.budget.most.output_tv == 0.1
    assert rule in axes["acceptance"]
    assert bound in (SWEEPS / "space.py").read_text()
