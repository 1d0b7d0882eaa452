"""A frozen target that does not fit a device: each process holds a part of every layer (FSDP), and a layer is whole
only while it is computed. The drafter stays whole, under DDP."""

from dataclasses import replace
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from lantern.errors import LanternError
from lantern.models.hf.target import HuggingFaceTarget
from lantern.models.llamagen.fused import linear
from lantern.models.llamagen.target import LlamaGenTarget


class ShardedTarget(pl.Callback):
    """Shards the target of a drafter's training over all processes, after its tables of tokens and samples are made:
    they need it whole."""

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
    """Replaces every layer of the target by this process's part and moves the rest to the device. The target then has
    features and a head, and decodes no more."""
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
    _shard_layers(target.transformer, mesh, device)
    tables = ("embed", "head", "bias", "row_end")
    found = {name: getattr(target.vocabulary, name) for name in tables}
    moved = {name: table.to(device) for name, table in found.items() if table is not None}
    if isinstance(hidden := target.vocabulary.hidden, nn.Module):
        hidden.to(device)
    target.vocabulary, target.rotation = replace(target.vocabulary, **moved), target.rotation.to(device)


def _shard_layers(body: nn.Module, mesh: DeviceMesh, device: torch.device) -> None:
    for layer in body.layers:  # one at a time: only this one is whole on the device
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    body.to(device)
