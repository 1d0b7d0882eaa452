"""What a training runs on: accelerator, precision, and several processes that must find each other and do the same."""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import DDPStrategy, Strategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from lantern.errors import LanternError
from lantern.identity import INT8
from lantern.models.hf.target import HuggingFaceTarget
from lantern.models.llamagen.fused import linear
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.runtime.hardware import is_bf16_fast, resolve_dtype

FOLDER = "hydra.run.dir="
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


def check_processes(trainer: pl.Trainer, hydra_overrides: Sequence[str], is_sweep: bool) -> None:
    """Refuses processes that could not train together: each would run a whole sweep, train in another folder, or hang
    after a restart by torchrun."""
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
    environment = getattr(trainer.strategy, "cluster_environment", None)
    chose_own_folders = trainer.world_size > 1 and environment is not None and environment.creates_processes_externally
    if chose_own_folders and not is_sweep and not any(o.startswith(FOLDER) for o in hydra_overrides):
        raise LanternError(
            f"{trainer.world_size} processes were started without a common folder; give {FOLDER}<folder that all see>"
        )


def default_accelerator(device: str) -> str:
    """ "cuda" if there is such a GPU and `device` (or accelerator) is not "cpu", otherwise "cpu", as resolve_device.
    On a Mac Lightning would choose mps, which has no float64."""
    return "cuda" if torch.cuda.is_available() and device != "cpu" else "cpu"


def fastest_precision(accelerator: str) -> str:
    """ "bf16-mixed" where this trainer.accelerator has hardware instructions for bf16 products, else "32-true"."""
    return "bf16-mixed" if is_bf16_fast(default_accelerator(accelerator)) else "32-true"


def training_dtype(dtype: str, device: torch.device) -> str:
    """Resolves dtype=auto for the training device. The target is first loaded into main memory, where auto would give
    the CPU's dtype."""
    chooses = dtype == "auto" and device.type != "cpu"
    return str(resolve_dtype(dtype, device)).removeprefix("torch.") if chooses else dtype


class ShardedTarget(pl.Callback):
    """Shards a frozen target that does not fit a device (FSDP): each process holds a part of every layer; a layer is
    whole only while it is computed. Tables of tokens and samples need the whole target, so they are made first. The
    drafter stays whole, under DDP."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if not dist.is_initialized() or not hasattr(pl_module, "target"):
            raise LanternError(
                "callbacks=sharded_target shards the frozen target of task=drafter over several processes; "
                "give trainer.devices=2, or leave it out"
            )
        for name in ("train", "validation"):
            trainer.datamodule.splits.split(name)
        dist.barrier()
        device = trainer.strategy.root_device
        shard(pl_module.target, init_device_mesh(device.type, (trainer.world_size,)), device)


def shard(target: Any, mesh: DeviceMesh, device: torch.device) -> None:
    """Replaces every layer of the target by this process's part and moves the rest to the device. The target then
    still computes features and logits, but can no longer decode."""
    if isinstance(target, LlamaGenTarget):
        _shard_llamagen(target, mesh, device)
    elif isinstance(target, HuggingFaceTarget):
        _shard_transformers(target, mesh, device)
    else:
        raise LanternError(f"{type(target).__name__} has no layers to shard; leave callbacks=sharded_target out")


def _shard_llamagen(target: LlamaGenTarget, mesh: DeviceMesh, device: torch.device) -> None:
    del target.body  # decoding's copies of the layers
    _shard_layers(target.transformer, mesh, device)
    target._head = linear(target.transformer.output.weight)


def _shard_transformers(target: HuggingFaceTarget, mesh: DeviceMesh, device: torch.device) -> None:
    if target.weights_hash.endswith(INT8):  # FSDP gathers a layer's weights in one dtype
        raise LanternError("callbacks=sharded_target shards weights of one dtype; leave dtype=int8 out")
    _shard_layers(target.transformer, mesh, device)
    tables = ("embed", "head", "bias", "row_end")
    found = {name: getattr(target.vocabulary, name) for name in tables}
    moved = {name: table.to(device) for name, table in found.items() if table is not None}
    if isinstance(hidden := target.vocabulary.hidden, nn.Module):
        hidden.to(device)
    target.vocabulary, target.rotation = replace(target.vocabulary, **moved), target.rotation.to(device)
    if target.positions is not None:
        target.positions = target.positions.to(device)


def _shard_layers(body: nn.Module, mesh: DeviceMesh, device: torch.device) -> None:
    for layer in body.layers:  # one at a time: only this one is whole on the device
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    body.to(device)
