"""Training on several processes: how they find each other and for how long, and that all of them do the same."""

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from omegaconf import OmegaConf
from pytorch_lightning.strategies import DDPStrategy, Strategy

from lantern.errors import LanternError
from lantern.identity import code_hash, digest
from lantern.training.data_module import share_of_batch

FOLDER = "hydra.run.dir="
INTERACTIVE = ("bash", "interactive")  # names of Slurm's jobs in which Lightning starts the processes
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"  # torch 2.13 has one store for all starts, with keys that collide
ABSENT, SHOWN = "not given", 60  # in `differences`: a value that is missing, characters of a value
PASSING = (  # change no weight: may differ between processes, and from one start to the next
    "accelerator", "device", "devices", "num_nodes", "budget_gib", "cache_dir", "sweep", "logger", "num_workers",
    "log_every_n_steps",
)  # fmt: skip


def strategy(devices: int | str, num_nodes: int, timeout_s: float) -> Strategy | str:
    """DDP that waits at most timeout_s for other processes, at the start and at each exchange; without others, what
    Lightning chooses."""
    if str(devices) == "1" and num_nodes == 1:
        return "auto"
    return DDPStrategy(timeout=timedelta(seconds=timeout_s))


def check_processes(trainer: pl.Trainer, batch_size: int, hydra_overrides: Sequence[str], is_sweep: bool) -> None:
    """Raises LanternError for a batch that the processes cannot share, for processes without a common folder, for
    processes of a sweep's point that would each run the sweep, for Slurm's tasks that would train apart, and for a
    torchrun whose restarts would hang."""
    _check_tasks(trainer)
    if is_sweep and trainer.world_size > 1 and _slurm_tasks() == 1:
        raise LanternError(
            f"each of a point's {trainer.world_size} processes would run the whole sweep; give trainer.devices=1, or "
            f"+launch=slurm hydra.launcher.tasks_per_node={trainer.world_size}"
        )
    share_of_batch(batch_size, trainer.world_size)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and os.environ.get("TORCHELASTIC_MAX_RESTARTS") != "0":
        raise LanternError(
            "torchrun would keep the addresses of dead processes, for which restarted ones would wait; start it with "
            f"{OWN_STORE} in the environment, or with --max-restarts=0"
        )
    environment = getattr(trainer.strategy, "cluster_environment", None)
    chose_own_folders = trainer.world_size > 1 and environment is not None and environment.creates_processes_externally
    if chose_own_folders and not is_sweep and not any(o.startswith(FOLDER) for o in hydra_overrides):
        raise LanternError(
            f"{trainer.world_size} processes were started without a common folder; give {FOLDER}<folder that all see>"
        )


def _slurm_tasks() -> int:
    """The processes that Slurm has started for this training; 1 without Slurm, and where Lightning starts them."""
    return 1 if os.environ.get("SLURM_JOB_NAME") in INTERACTIVE else int(os.environ.get("SLURM_NTASKS", 1))


def _check_tasks(trainer: pl.Trainer) -> None:
    """Raises LanternError unless Slurm's tasks are the processes that the trainer waits for: each of several tasks on
    one device would train alone, in the folder of the others."""
    tasks = _slurm_tasks()
    if tasks != 1 and tasks != trainer.num_devices * trainer.num_nodes:
        raise LanternError(
            f"Slurm has {tasks} tasks for this training, trainer.devices={trainer.num_devices} on trainer.num_nodes="
            f"{trainer.num_nodes} are {trainer.num_devices * trainer.num_nodes}; give trainer.devices=<tasks per node> "
            "and trainer.num_nodes=<nodes>, or one task a node"
        )


def was_restarted() -> bool:
    """Whether torchrun has started these processes again after one of them ended, or Slurm this job."""
    return any(int(os.environ.get(f"{by}_RESTART_COUNT", 0)) > 0 for by in ("TORCHELASTIC", "SLURM"))


def lasting_settings(config: object) -> object:
    """A configuration without PASSING: what a run and its continuation, or two processes, must have in common."""
    if isinstance(config, Mapping):
        return {key: lasting_settings(value) for key, value in config.items() if key not in PASSING}
    return [lasting_settings(value) for value in config] if isinstance(config, list) else config


def differences(before: object, now: object, name: str = "") -> list[str]:
    """Settings in which two configurations differ, by their dotted names with both values."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        pairs = {key: (before.get(key, ABSENT), now.get(key, ABSENT)) for key in [*before, *now]}
        parts = [differences(*pair, f"{name}.{key}" if name else str(key)) for key, pair in pairs.items()]
        return [found for part in parts for found in part]
    return [] if before == now else [f"{name} was {_shown(before)}, is {_shown(now)}"]


def _shown(value: object) -> str:
    return text if len(text := str(value)) <= SHOWN else f"{text[:SHOWN]}…"


class SameOnAllProcesses(pl.Callback):
    """Raises LanternError on every process if one has other settings, weights, code, torch or checkpoint."""

    def __init__(self, config: Mapping[str, object], weights: Mapping[str, str], checkpoint: str | None) -> None:
        self._own = {
            "settings": digest(OmegaConf.to_yaml(lasting_settings(config))),
            "weights": digest(dict(weights)),
            "code": code_hash(),
            "torch": torch.__version__,
            "checkpoint": checkpoint,
        }

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if not dist.is_initialized():
            return
        found: list = [None] * trainer.world_size
        dist.all_gather_object(found, self._own)
        for rank, other in enumerate(found):
            if wrong := [name for name, value in other.items() if value != found[0][name]]:
                raise LanternError(
                    f"process {rank} has other {' and '.join(wrong)} than process 0; start all processes with the same "
                    "command, weights and packages"
                )
