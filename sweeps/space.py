"""The part of a search space that depends on other choices, for sweep/optuna.yaml."""

from omegaconf import DictConfig
from optuna.trial import Trial


def suggest_bound(config: DictConfig, trial: Trial) -> None:
    """LANTERN's bound is the mass that a token may borrow, LANTERN++'s by how much its own is multiplied at most."""
    is_lantern = (trial.params | trial.user_attrs)["acceptance"] == "lantern"  # the latter are those of the command
    name, low, high = ("acceptance.delta", 0.003, 0.4) if is_lantern else ("acceptance.lam", 1.0, 20.0)
    if name not in trial.user_attrs:
        trial.suggest_float(name, low, high, log=True)
