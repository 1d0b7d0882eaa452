"""Models of transformers, as their config.json says: loaded strictly from a folder or the Hub, or without storage."""

import re
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from lantern.errors import CheckpointError, explaining
from lantern.identity import sampled_hash
from lantern.models.checkpoints import CONFIG_FILE, check_finite, check_fit, differences, note_expected
from lantern.models.hub import MODEL_FILES, find_folder, is_complete
from lantern.runtime.hardware import resolve_device, resolve_dtype

IMAGE_INPUTS = {  # by model_type, prefixes of what reads images, which drawing one does without
    "janus": ("lm_head.", "model.vision_model.", "model.aligner."),
    "chameleon": ("model.vqmodel.",),
    "glm_image": ("model.visual.", "model.vision."),
}


class Pretrained(NamedTuple):
    """A model with its text tokenizer and the hash of its weights; on the meta device without either."""

    model: PreTrainedModel
    text: PreTrainedTokenizerBase | None
    weights_hash: str


def wrap_loaded(model: PreTrainedModel, processor: object) -> Pretrained:
    """A model that is loaded already, as a checkpoint for load_pretrained."""
    text = getattr(processor, "tokenizer", processor)
    if not isinstance(text, PreTrainedTokenizerBase):
        raise CheckpointError(f"processor={processor!r} has no text tokenizer; give the model's processor or tokenizer")
    return Pretrained(sharing_weights(model), text, "")


def sharing_weights(model: PreTrainedModel) -> PreTrainedModel:
    """Modules of their own over the same weights, in evaluation mode, so that what is changed in them, such as the
    attention, leaves the caller's model as it is."""
    tensors = (*model.parameters(), *model.buffers())
    shared = {id(tensor): tensor.detach() for tensor in tensors}
    shared |= {id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in model.parameters()}
    copied = deepcopy(model, shared)
    for module in copied.modules():
        module.is_shared = True  # no projections are fused, which would need a second copy of them
    return copied.eval()


def load_pretrained(
    family: type[PreTrainedModel] | type[AutoModelForCausalLM], checkpoint: str | Path | Pretrained, dtype: str,
    device: str, *, ignored: Sequence[str] = (),
    per_head: str | None = None, setting: str = "model.checkpoint", parts: tuple[str, str] = ("", ""),
) -> Pretrained:  # fmt: skip
    """A model of the sizes in its own config.json, all that is read on the meta device. ignored: prefixes of names
    that may be absent or in excess; per_head: a pattern of names whose weights [H, D] the checkpoint may hold once for
    several heads; parts: folders of the model and its text tokenizer within the checkpoint's, where they lie apart."""
    if isinstance(checkpoint, Pretrained):
        if not isinstance(checkpoint.model, _class_of(family, checkpoint.model.config)):
            raise CheckpointError(f"{type(checkpoint.model).__name__} is no {family.__name__}; give its own name=…")
        return checkpoint._replace(weights_hash=model_hash(checkpoint.model, tuple(ignored)))
    torch_device = resolve_device(device)
    torch_dtype = resolve_dtype(dtype, torch_device)
    folder, words = _find_parts(checkpoint, setting, parts, torch_device.type == "meta")
    config = _read_config(getattr(family, "config_class", None) or AutoConfig, folder, setting)
    family = _class_of(family, config)
    if torch_device.type == "meta":
        with torch.device("meta"):
            model = family(config).to(torch_dtype)
        note_expected(model, checkpoint, ignored=tuple(ignored))
        return Pretrained(model, None, "")
    model, report = _read(family, config, folder, torch_dtype)
    if per_head:
        _spread_over_heads(model, report, folder, re.compile(per_head))
    _check(report, folder, setting, tuple(ignored))
    check_finite(dict(model.named_parameters()), folder)
    with explaining(f"no readable text tokenizer in {words}", "copy the tokenizer's files there"):
        text = AutoTokenizer.from_pretrained(words, local_files_only=True)
    made_of = model_hash(model, tuple(ignored))
    return Pretrained(model.to(torch_device).eval().requires_grad_(False), text, made_of)


def _find_parts(source: str | Path, setting: str, parts: tuple[str, str], describes: bool) -> tuple[Path, Path]:
    """The folders of these names within a model's, or it for both if the first is absent. describes: by config.json."""
    files: Sequence[str] = MODEL_FILES
    if describes:
        files = [f"{parts[0]}/{CONFIG_FILE}".lstrip("/")]
    elif parts[0]:
        files = [f"{part}/*{suffix}" for part in parts for suffix in ("safetensors", "json", "model", "txt", "jinja")]

    def suffices(folder: Path) -> bool:
        return (folder / files[0]).is_file() if describes else is_complete(folder / parts[0])

    whole = find_folder(source, setting, files=files, suffices=suffices)
    inner, words = (whole / part for part in parts)
    return (inner, words if words.is_dir() else inner) if inner.is_dir() else (whole, whole)


def _read_config(kind: type[PreTrainedConfig] | type[AutoConfig], folder: Path, setting: str) -> PreTrainedConfig:
    set_verbosity_error()
    remedy = f"copy all files of the model there, or set {setting}"
    with explaining(f"{folder}/{CONFIG_FILE} describes no model", remedy):
        (folder / CONFIG_FILE).stat()  # without one transformers takes the family's defaults
        config = kind.from_pretrained(folder, local_files_only=True)
    if (wanted := getattr(kind, "model_type", config.model_type)) != config.model_type:
        found = config.model_type
        raise CheckpointError(f"{folder} holds a {found} model where a {wanted} is needed; give {setting}=<one of it>")
    if getattr(config, "vocabulary_map", {}) is None:  # Chameleon's, of image inputs; some releases leave it out
        config.vocabulary_map = {}
    return config


def _class_of(family: type, config: PreTrainedConfig) -> type[PreTrainedModel]:
    """family, or what transformers has for this config where that is AutoModelForCausalLM."""
    return family._model_mapping[type(config)] if family is AutoModelForCausalLM else family


def _read(
    family: type[PreTrainedModel], config: PreTrainedConfig, folder: Path, dtype: torch.dtype
) -> tuple[PreTrainedModel, dict]:
    """The model, and the report of names and shapes that did not fit."""
    disable_progress_bar()
    set_verbosity_error()  # without its report of names and shapes; _check has a sentence for what matters of it
    with explaining(f"no readable weights in {folder}; code in them is never executed", "copy them again"):
        return family.from_pretrained(
            folder, config=config, dtype=dtype, local_files_only=True, output_loading_info=True,
            ignore_mismatched_sizes=True,
        )  # fmt: skip


def _spread_over_heads(model: PreTrainedModel, report: dict, folder: Path, per_head: re.Pattern) -> None:
    """Fills weights [H, D] that are stored as [S, D], each row for H / S heads, and takes them off the report. Those of
    safetensors alone: only they are read."""
    weights = dict(model.named_parameters())
    spread = {
        name
        for name, found, wanted in report["mismatched_keys"]
        if per_head.search(name) and found[1:] == wanted[1:] and wanted[0] % found[0] == 0
    }
    for path in folder.glob("*.safetensors") if spread else ():
        with safe_open(path, "pt") as file:
            for name in spread & set(file.keys()):
                value = file.get_tensor(name)
                weights[name].data.copy_(value.repeat_interleave(len(weights[name]) // len(value), 0))
                report["mismatched_keys"] = [entry for entry in report["mismatched_keys"] if entry[0] != name]


def model_hash(model: nn.Module, ignored: tuple[str, ...]) -> str:
    """sampled_hash of what a model computes with: its weights and, not in its files, the angles of its positions.
    ignored: prefixes of parts that no image passes through."""
    weights = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    return sampled_hash({name: weight for name, weight in weights.items() if not name.startswith(ignored)})


def _check(report: dict, folder: Path, setting: str, ignored: tuple[str, ...]) -> None:
    both = report["mismatched_keys"]
    wanted = {key: [0] for key in sorted(report["missing_keys"])} | {name: list(shape) for name, _, shape in both}
    found = {key: [0] for key in sorted(report["unexpected_keys"])} | {name: list(shape) for name, shape, _ in both}
    check_fit(differences(wanted, found, ignored), folder, f"give {setting}=<a checkpoint of this size>")
