"""Points side by side on one machine divide its cores."""

import os

import pytest
from hydra import initialize_config_dir
from hydra.utils import instantiate
from support.configs import composed_with_hydra
from support.paths import CONF

from lantern.cli import sweep_callback
from lantern.cli.sweep_callback import THREADS


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(sweep_callback, "usable_cores", lambda: list(range(8)))
    monkeypatch.setenv(THREADS, "7")  # put back after the test, also where it is deleted here
    monkeypatch.delenv(THREADS)


DELTAS = "acceptance.delta=0,0.1,0.4"  # the lossless reference makes four points


@pytest.mark.parametrize(("settings", "threads"), [
    (["+launch=joblib"], 4),
    (["+launch=joblib", "hydra.launcher.n_jobs=3"], 2),
    (["+launch=joblib", "hydra.launcher.n_jobs=-1"], 2),
    (["+launch=submitit_local"], 2),
])  # fmt: skip
def test_each_process_has_its_share_of_the_cores(settings, threads):
    """Catches as many threads as cores in each of several processes, and fewer than there are cores for."""
    cfg = composed_with_hydra("evaluate", "+sweep=delta", *settings)
    cfg.hydra.overrides.task = ["+sweep=delta", DELTAS]
    instantiate(cfg.hydra.callbacks.cores).on_multirun_start(cfg)
    assert os.environ[THREADS] == str(threads)


def test_shards_divide_the_cores_too(monkeypatch):
    cfg = composed_with_hydra("evaluate", "shards=16", "shard=0", "+launch=submitit_local")
    cfg.hydra.overrides.task = ["shards=16", "shard=range(16)"]
    instantiate(cfg.hydra.callbacks.cores).on_multirun_start(cfg)
    assert os.environ[THREADS] == "1"


def test_the_points_of_a_glob_are_counted():
    """Catches a sweep over all options of a group, of which each process takes all cores."""
    cfg = composed_with_hydra("train", "+sweep=recipe", "+launch=joblib")
    with initialize_config_dir(str(CONF), version_base="1.3"):  # as while Hydra runs
        instantiate(cfg.hydra.callbacks.cores).on_multirun_start(cfg)
    assert os.environ[THREADS] == "4"


def test_a_number_that_the_user_has_set_is_kept(monkeypatch):
    monkeypatch.setenv(THREADS, "5")
    cfg = composed_with_hydra("evaluate", "+sweep=delta", "+launch=submitit_local")
    instantiate(cfg.hydra.callbacks.cores).on_multirun_start(cfg)
    assert os.environ[THREADS] == "5"
