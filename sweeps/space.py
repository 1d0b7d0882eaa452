"""The part of a search space that depends on other choices, for sweep/optuna.yaml."""

from omegaconf import DictConfig
from optuna.trial import Trial


def suggest_bound(config: DictConfig, trial: Trial) -> None:
    """LANTERN's bound is the mass that a token may borrow, LANTERN++'s by how much its own is multiplied at most."""
    if trial.params["acceptance"] == "lantern":
        trial.suggest_float("acceptance.delta", 0.003, 0.4, log=True)
    else:
        trial.suggest_float("acceptance.lam", 1.0, 20.0, log=True)
