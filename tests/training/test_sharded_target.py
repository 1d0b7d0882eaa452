"""Sharding keeps the features and the head of any target; on two and three processes: test_several_processes.py."""

import lantern  # noqa: F401  (first: see its docstring)

# isort: split
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from hydra.utils import instantiate
from support.families import FAMILIES
from support.loaded_families import PROMPTS, config
from torch.distributed.device_mesh import init_device_mesh

from lantern.errors import LanternError
from lantern.training.drafter.teacher_forcing import target_features
from lantern.training.run.processes import ShardedTarget, shard, training_dtype


@pytest.fixture
def mesh():
    """Of a single process, with the hooks that several have."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["emu3", "janus_pro"])
def test_a_sharded_transformers_target_keeps_its_features_and_head(name, mesh, tmp_path):
    """Catches fused projections, tables or row ends that sharding loses."""
    FAMILIES[name].make(tmp_path)
    target = instantiate(config(FAMILIES[name], tmp_path).model)
    tokens = torch.randint(24, (3, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = target_features(target, tokens, PROMPTS)
        laws = target.head(target.guide(whole))
        shard(target, mesh, torch.device("cpu"))
        assert all(hasattr(layer, "unshard") for layer in target.transformer.layers)
        again = target_features(target, tokens, PROMPTS)
        assert torch.equal(again, whole)
        assert torch.equal(target.head(target.guide(again)), laws)


def test_the_whole_head_is_moved_to_the_device(tmp_path, monkeypatch):
    """Catches a part of it that stays in main memory, where features of the device do not meet it."""
    FAMILIES["janus_pro"].make(tmp_path)
    target = instantiate(config(FAMILIES["janus_pro"], tmp_path).model)
    monkeypatch.setattr("lantern.training.run.processes._shard_layers", lambda *_: None)
    shard(target, None, torch.device("meta"))
    head = target.vocabulary
    moved = [head.embed, head.head, head.bias, target.rotation, *head.hidden.parameters()]
    assert len(moved) == 6  # a layer before the head has a weight and a bias
    assert {part.device.type for part in moved} == {"meta"}


def test_one_process_and_a_target_without_layers_are_one_sentence(mesh):
    with pytest.raises(LanternError, match="SimpleNamespace has no layers to shard"):
        shard(SimpleNamespace(), mesh, torch.device("cpu"))
    dist.destroy_process_group()
    with pytest.raises(LanternError, match=r"this is one; give trainer\.devices=2"):
        ShardedTarget().setup(pl.Trainer(barebones=True, accelerator="cpu"), pl.LightningModule(), "fit")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def test_the_dtype_of_a_target_is_chosen_by_the_device_that_trains(monkeypatch):
    """Catches a target in float32 on eight GPUs, twice as large, because it is loaded by a processor."""
    fast = {"cpu": False, "cuda": True}
    monkeypatch.setattr("lantern.runtime.hardware.is_bf16_fast", lambda device: fast[torch.device(device).type])
    assert training_dtype("auto", torch.device("cuda", 1)) == "bfloat16"
    assert training_dtype("float32", torch.device("cuda", 1)) == "float32"
    assert training_dtype("auto", torch.device("cpu")) == "auto"  # as the loader resolves it
    monkeypatch.setitem(fast, "cuda", False)
    assert training_dtype("auto", torch.device("cuda", 1)) == "float32"
