"""What a training runs on: accelerator, precision, and several processes that must find each other and do the same."""

import os
from collections.abc import Sequence
from datetime import timedelta

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy, Strategy

from lantern.errors import LanternError
from lantern.runtime.hardware import is_bf16_fast

INTERACTIVE = ("bash", "interactive")  # names of Slurm's jobs in which Lightning starts the processes
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"  # torch 2.13 has one store for all starts, with keys that collide
TIMEOUT_S = 1800  # for a process that never arrives, at the start and at each exchange


def strategy(devices: int | str | Sequence[int], num_nodes: int) -> Strategy | str:
    """DDP for several processes; for a single one, Lightning's choice. LanternError where Slurm has started another
    number of them: each would train alone, all in one folder, or one where several are asked for."""
    per_node = len(devices) if isinstance(devices, Sequence) and not isinstance(devices, str) else devices
    wanted = int(per_node) * num_nodes if str(per_node).isdecimal() else None
    if (tasks := _slurm_tasks()) is not None and wanted not in (None, tasks):
        raise LanternError(
            f"Slurm has {tasks} task{'s' * (tasks != 1)} for this training, trainer.devices={devices} on "
            f"trainer.num_nodes={num_nodes} are {wanted}; start a task for each device (srun --ntasks={wanted}), or "
            "give trainer.devices=<tasks per node> and trainer.num_nodes=<nodes>"
        )
    if wanted == 1:
        return "auto"
    return DDPStrategy(timeout=timedelta(seconds=TIMEOUT_S))


def _slurm_tasks() -> int | None:
    """The processes that Slurm has started for this training; None where Lightning or torchrun starts them."""
    starts_others = os.environ.get("SLURM_JOB_NAME") in INTERACTIVE or "TORCHELASTIC_RUN_ID" in os.environ
    tasks = os.environ.get("SLURM_NTASKS")
    return None if starts_others or tasks is None else int(tasks)


def check_processes(trainer: pl.Trainer, is_sweep: bool) -> None:
    """Refuses processes that cannot train together: each would run a whole sweep, or hang after torchrun's restart."""
    if is_sweep and trainer.world_size > 1 and _slurm_tasks() is None:
        raise LanternError(
            f"each of a point's {trainer.world_size} processes would run the whole sweep; give trainer.devices=1, or "
            f"+launch=slurm hydra.launcher.tasks_per_node={trainer.world_size}"
        )
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and os.environ.get("TORCHELASTIC_MAX_RESTARTS") != "0":
        raise LanternError(
            "torchrun would keep the addresses of dead processes, for which restarted ones would wait; start it with "
            f"{OWN_STORE} in the environment, or with --max-restarts=0"
        )


def default_accelerator(device: str) -> str:
    """ "cuda" if there is such a GPU and `device` (or accelerator) is not "cpu", otherwise "cpu", as resolve_device.
    On a Mac Lightning would choose mps, which has no float64."""
    return "cuda" if torch.cuda.is_available() and device != "cpu" else "cpu"


def fastest_precision(accelerator: str) -> str:
    """ "bf16-mixed" where this trainer.accelerator has hardware instructions for bf16 products, else "32-true"."""
    return "bf16-mixed" if is_bf16_fast(default_accelerator(accelerator)) else "32-true"
