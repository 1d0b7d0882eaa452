"""Processes that cannot train together are refused before they wait for each other."""

import socket
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
from support.tiny_tasks import MemorySplits, target_task

from lantern.errors import LanternError
from lantern.training.data_module import TrainingData
from lantern.training.run.fit import fit
from lantern.training.run.processes import check_processes, strategy


def trainer_of(world_size: int, devices: int = 1, nodes: int = 1) -> SimpleNamespace:
    environment = SimpleNamespace(creates_processes_externally=True)
    strategy = SimpleNamespace(cluster_environment=environment)
    return SimpleNamespace(world_size=world_size, num_devices=devices, num_nodes=nodes, strategy=strategy)


def test_processes_started_from_outside_need_a_common_folder():
    """Catches ranks that each write to a folder named by their own start."""
    for world_size, overrides in [(1, []), (2, ["hydra.run.dir=a"])]:
        check_processes(trainer_of(world_size), overrides, False)
    with pytest.raises(LanternError, match=r"2 processes were started without a common folder; give hydra\.run\.dir="):
        check_processes(trainer_of(2), ["hydra.job.name=x"], False)


def test_a_point_of_a_sweep_has_one_process_unless_slurm_starts_its_tasks(monkeypatch):
    """Catches a second process that runs the whole sweep again, while the first one waits for it."""
    for name, value in {"SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2"}.items():
        monkeypatch.setenv(name, value)
    pair = trainer_of(2, devices=2)
    check_processes(pair, [], True)  # the launcher has chosen their folder
    said = r"each of a point's 2 processes would run the whole sweep; give trainer\.devices=1, or \+launch=slurm"
    monkeypatch.setenv("SLURM_JOB_NAME", "bash")  # an allocation, in which Lightning would start them
    with pytest.raises(LanternError, match=said):
        check_processes(pair, [], True)
    check_processes(trainer_of(1), [], True)


@pytest.mark.parametrize(("tasks", "devices", "nodes", "name", "is_refused"), [
    (4, 1, 1, "train", True), (4, 2, 1, "train", True), (4, 2, 2, "train", False), (4, [0, 1, 2, 3], 1, "train", False),
    (4, 1, 1, "interactive", False), (1, 2, 1, "train", True), (1, 1, 1, "train", False),
])  # fmt: skip
def test_tasks_of_slurm_that_are_not_the_trainers_processes_are_refused(
    tasks, devices, nodes, name, is_refused, monkeypatch
):
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
        check_processes(trainer_of(2), ["hydra.run.dir=a"], False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    check_processes(trainer_of(2), ["hydra.run.dir=a"], False)


@pytest.mark.parametrize("is_taken", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_process_that_never_arrives_and_a_port_in_use_are_one_sentence(is_taken, weights, monkeypatch, tmp_path):
    monkeypatch.setattr("lantern.training.run.processes.TIMEOUT_S", 2)
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        if not is_taken:
            server.close()
        settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NODE_RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 2}
        for name, value in settings.items():  # all that Lightning sets, so that they are put back
            monkeypatch.setenv(name, str(value))
        trainer = pl.Trainer(
            accelerator="cpu", devices=1, num_nodes=2, strategy=strategy(1, 2), max_steps=1, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=tmp_path,
        )  # fmt: skip
        with pytest.raises(LanternError, match=r"the 2 processes did not find each other .*MASTER_PORT"):
            fit(trainer, target_task(weights), TrainingData(MemorySplits(), 4, 3), None)
