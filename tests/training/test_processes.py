"""Processes that cannot train together are refused before they wait for each other."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from lantern.errors import LanternError
from lantern.training.run.processes import check_processes, strategy


def trainer_of(world_size: int, devices: int = 1, nodes: int = 1) -> SimpleNamespace:
    environment = SimpleNamespace(creates_processes_externally=True)
    strategy = SimpleNamespace(cluster_environment=environment)
    return SimpleNamespace(world_size=world_size, num_devices=devices, num_nodes=nodes, strategy=strategy)


def test_a_point_of_a_sweep_has_one_process_unless_slurm_starts_its_tasks(monkeypatch):
    """Catches a second process that runs the whole sweep again, while the first one waits for it."""
    for name, value in {"SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2"}.items():
        monkeypatch.setenv(name, value)
    pair = trainer_of(2, devices=2)
    check_processes(pair, True)  # the launcher has chosen their folder
    said = r"each of a point's 2 processes would run the whole sweep; give trainer\.devices=1, or \+launch=slurm"
    monkeypatch.setenv("SLURM_JOB_NAME", "bash")  # an allocation, in which Lightning would start them
    with pytest.raises(LanternError, match=said):
        check_processes(pair, True)
    check_processes(trainer_of(1), True)


@pytest.mark.parametrize(("tasks", "devices", "nodes", "name", "is_refused"), [
    (4, 1, 1, "train", True), (4, 2, 1, "train", True), (4, 2, 2, "train", False), (4, [0, 1, 2, 3], 1, "train", False),
    (4, 1, 1, "interactive", False), (1, 2, 1, "train", True), (1, 1, 1, "train", False),
])  # fmt: skip
def test_tasks_of_slurm_that_are_not_the_trainers_are_refused(tasks, devices, nodes, name, is_refused, monkeypatch):
    """Catches hydra.launcher.tasks_per_node=4 with trainer.devices=1: four trainings in one folder; and one task with
    trainer.devices=2: a training on one device."""
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.setenv("SLURM_NTASKS", str(tasks))
    monkeypatch.setenv("SLURM_JOB_NAME", name)
    with pytest.raises(LanternError, match=f"Slurm has {tasks} task") if is_refused else nullcontext():
        strategy(devices, nodes)


def test_a_torchrun_whose_restarts_would_hang_is_refused(monkeypatch):
    """Restarted processes would wait for the addresses of dead ones: seen with torch 2.13 and gloo."""
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    with pytest.raises(LanternError, match="TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"):
        check_processes(trainer_of(2), False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    check_processes(trainer_of(2), False)
