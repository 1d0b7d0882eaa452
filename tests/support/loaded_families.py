"""The families of tests/support/families.py, instantiated from disk as their yaml says."""

from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig, OmegaConf
from support.configs import composed
from support.families import SIDE, Family
from transformers import PreTrainedModel

from lantern.models.hf.target import HuggingFaceTarget

PROMPTS = ["a red sphere", "a blue ring on wood", "sand"]
LENGTH = 32


class Loaded(NamedTuple):
    family: Family
    folder: Path
    target: HuggingFaceTarget
    slow: PreTrainedModel


def config(family: Family, folder: Path, *overrides: str) -> DictConfig:
    cfg = composed("evaluate", f"model={family.model}", "dtype=float32", "device=cpu", *overrides)
    OmegaConf.set_struct(cfg, False)
    changes = {"checkpoint": str(folder), "prefix_len": LENGTH, **family.changes}
    if "image_size" in cfg.model:
        changes["image_size"] = 2 * SIDE
    if "tokenizer" in changes:
        changes["tokenizer"] = {"checkpoint": str(folder), "file": "vqgan.ckpt", **changes["tokenizer"]}
    cfg.model = OmegaConf.merge(cfg.model, changes)
    return cfg
