"""Points side by side on one machine divide its cores."""

import os

import pytest
from hydra.utils import instantiate
from support.configs import composed_with_hydra

from lantern.cli.sweep_callback import THREADS
from lantern.runtime import cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(cores, "usable_cores", lambda: list(range(8)))
    monkeypatch.setenv(THREADS, "7")  # put back after the test, also where it is deleted here
    monkeypatch.delenv(THREADS)


DELTAS = ["+sweep=delta", "acceptance.delta=0,0.1,0.4"]  # the lossless reference makes four points


@pytest.mark.parametrize(("settings", "task", "threads"), [
    (["+launch=joblib"], DELTAS, 4),
    (["+launch=joblib", "hydra.launcher.n_jobs=-1"], DELTAS, 2),
    (["+launch=submitit_local"], ["shards=16", "shard=range(16)"], 1),
])  # fmt: skip
def test_each_process_has_its_share_of_the_cores(settings, task, threads):
    """Catches as many threads as cores in each of several processes, and fewer than there are cores for."""
    cfg = composed_with_hydra("evaluate", *task[:1], *settings)
    cfg.hydra.overrides.task = task
    instantiate(cfg.hydra.callbacks.cores).on_multirun_start(cfg)
    assert os.environ[THREADS] == str(threads)


def test_a_number_that_the_user_has_set_is_kept(monkeypatch):
    monkeypatch.setenv(THREADS, "5")
    cfg = composed_with_hydra("evaluate", "+sweep=delta", "+launch=submitit_local")
    instantiate(cfg.hydra.callbacks.cores).on_multirun_start(cfg)
    assert os.environ[THREADS] == "5"
