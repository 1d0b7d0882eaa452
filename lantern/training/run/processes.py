"""What a training runs on: accelerator, precision, and several processes that must find each other and do the same."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from omegaconf import OmegaConf
from pytorch_lightning.strategies import DDPStrategy, Strategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from lantern.errors import LanternError
from lantern.identity import INT8, code_hash, digest
from lantern.models.hf.target import HuggingFaceTarget
from lantern.models.llamagen.fused import linear
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.runtime.hardware import is_bf16_fast, resolve_dtype
from lantern.training.data_module import share_of_batch
from lantern.training.run.training_folder import lasting_settings

FOLDER = "hydra.run.dir="
INTERACTIVE = ("bash", "interactive")  # names of Slurm's jobs in which Lightning starts the processes
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"  # torch 2.13 has one store for all starts, with keys that collide
TIMEOUT_S = 1800  # for a process that never arrives, at the start and at each exchange


def strategy(devices: int | str, num_nodes: int) -> Strategy | str:
    """DDP for several processes; for a single one, Lightning's choice."""
    if str(devices) == "1" and num_nodes == 1:
        return "auto"
    return DDPStrategy(timeout=timedelta(seconds=TIMEOUT_S))


def check_processes(trainer: pl.Trainer, batch_size: int, hydra_overrides: Sequence[str], is_sweep: bool) -> None:
    """Refuses processes that could not train together: each would run a whole sweep, train alone in another folder,
    hang after a restart by torchrun, or get another share of the batch."""
    tasks, wanted = _slurm_tasks(), trainer.num_devices * trainer.num_nodes
    if tasks not in (1, wanted):  # each of several tasks on one device would train alone, in the folder of the others
        raise LanternError(
            f"Slurm has {tasks} tasks for this training, trainer.devices={trainer.num_devices} on trainer.num_nodes="
            f"{trainer.num_nodes} are {wanted}; give trainer.devices=<tasks per node> and trainer.num_nodes=<nodes>, "
            "or one task a node"
        )
    if is_sweep and trainer.world_size > 1 and tasks == 1:
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


class SameOnAllProcesses(pl.Callback):
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
        if not dist.is_initialized():
            raise LanternError(
                "callbacks=sharded_target shards the target over several processes, this is one; give "
                "trainer.devices=2, or leave it out"
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
