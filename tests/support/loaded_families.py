"""The families of tests/support/families.py, instantiated from disk as their yaml says."""

from pathlib import Path
from typing import NamedTuple

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from support.families import SIDE, Family
from transformers import PreTrainedModel

from lantern.api import CONFIG_FOLDER
from lantern.models.hf.target import HuggingFaceTarget

PROMPTS = ["a red sphere", "a blue ring on wood", "sand"]
LENGTH = 32


class Loaded(NamedTuple):
    family: Family
    folder: Path
    target: HuggingFaceTarget
    slow: PreTrainedModel


def config(family: Family, folder: Path, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        cfg = compose("evaluate", [f"model={family.model}", "dtype=float32", "device=cpu", *overrides])
    OmegaConf.set_struct(cfg, False)
    changes = {"checkpoint": str(folder), "prefix_len": LENGTH, **family.changes}
    if "image_size" in cfg.model:
        changes["image_size"] = 2 * SIDE
    if "tokenizer" in changes:
        changes["tokenizer"] = {"checkpoint": str(folder), "file": "vqgan.ckpt", **changes["tokenizer"]}
    cfg.model = OmegaConf.merge(cfg.model, changes)
    return cfg
