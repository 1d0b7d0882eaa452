"""The samples in sweeps/: for agents of Weights & Biases and for Hydra's Optuna sweeper, which is no dependency."""

import pytest
from omegaconf import OmegaConf
from support.configs import composed
from support.paths import ROOT

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
