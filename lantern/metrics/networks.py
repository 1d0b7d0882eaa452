"""Networks that judge images, from local files or the Hub: vision networks such as DINOv2 (2304.07193), CLIP
(2103.00020) and its descendants PickScore (2305.01569) and HPSv2 (2306.09341), whose scores of images and prompts are a
metric."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, interpolate
from transformers import AutoConfig, AutoModel, AutoTokenizer, CLIPConfig, CLIPModel, CLIPVisionModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from lantern.data.image_sets import Images
from lantern.errors import CheckpointError, LanternError, first_line
from lantern.identity import state_hash
from lantern.metrics.intervals import mean_interval
from lantern.metrics.metric import ImagesMemo, Metric, batches
from lantern.models.checkpoints import load_strictly, read_weights, shortened
from lantern.models.hub import find_file, find_folder
from lantern.runtime.hardware import resolve_device

BATCH_SIZE = 32
UNREADABLE = (OSError, ValueError, KeyError, AttributeError, RuntimeError, SafetensorError, UnpicklingError)
CLIP_BYTES, VISION_BYTES, TOKENIZER_BYTES = 4 * 10**9, 4 * 10**8, 3 * 10**6  # about, of the usual ones
OPEN_CLIP_FILE = "HPS_v2.1_compressed.pt"  # of a Hub id
TOKENIZER_FILES = "*.json", "*.txt"
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
OPEN_CLIP_NAMES = (  # parts of the names of weights in open_clip and in transformers, replaced in this order
    ("visual.transformer.resblocks.", "vision_model.encoder.layers."),
    ("visual.class_embedding", "vision_model.embeddings.class_embedding"),
    ("visual.positional_embedding", "vision_model.embeddings.position_embedding.weight"),
    ("visual.conv1.", "vision_model.embeddings.patch_embedding."),
    ("visual.ln_pre.", "vision_model.pre_layrnorm."),
    ("visual.ln_post.", "vision_model.post_layernorm."),
    ("visual.proj", "visual_projection.weight"),
    ("transformer.resblocks.", "text_model.encoder.layers."),
    ("token_embedding.", "text_model.embeddings.token_embedding."),
    ("positional_embedding", "text_model.embeddings.position_embedding.weight"),
    ("ln_final.", "text_model.final_layer_norm."),
    ("text_projection", "text_projection.weight"),
    (".ln_1.", ".layer_norm1."),
    (".ln_2.", ".layer_norm2."),
    (".attn.out_proj.", ".self_attn.out_proj."),
    (".mlp.c_fc.", ".mlp.fc1."),
    (".mlp.c_proj.", ".mlp.fc2."),
)


class Pixels(nn.Module):
    """Preprocessing: one size, bicubic with antialiasing; normalised channels. Takes images from any device."""

    def __init__(self, size: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.size, self.resize = size, f"bicubic antialiased {size}"
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:  # [B, 3, H, W] in [0, 1] -> [B, 3, size, size]
        size = self.size, self.size
        resized = interpolate(images.to(self.mean.device), size, mode="bicubic", antialias=True)
        return (resized.clamp(0, 1) - self.mean) / self.std


class VisionFeatures(nn.Module):
    """The pooled output of a vision network as features."""

    def __init__(self, body: nn.Module, pixels: Pixels) -> None:
        super().__init__()
        self.body, self.pixels, self.resize = body, pixels, pixels.resize

    def features(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] in [0, 1] -> [B, F]"""
        return self.body(self.pixels(images)).pooler_output


class Clip(nn.Module):
    """Scores images by the cosine of their embedding and their prompt's, times `scale`."""

    def __init__(self, body: CLIPModel, tokenizer: Tokenizer, pixels: Pixels, scale: float) -> None:
        super().__init__()
        self.body, self.tokenizer, self.pixels, self.scale = body, tokenizer, pixels, scale
        self.resize = pixels.resize

    @torch.inference_mode()
    def scores(self, images: Tensor, prompts: Sequence[str]) -> Tensor:  # [B, 3, H, W] in [0, 1], B prompts -> [B]
        limits = {"truncation": True, "max_length": self.max_tokens}
        texts = self.tokenizer(list(prompts), padding=True, return_tensors="pt", **limits)
        texts = texts.to(self.body.device)
        words = self.body.get_text_features(texts.input_ids, texts.attention_mask).pooler_output
        shown = self.body.get_image_features(self.pixels(images)).pooler_output
        return self.scale * cosine_similarity(shown, words)

    @property
    def max_tokens(self) -> int:
        """Of a prompt, its first and last token included."""
        return self.body.config.text_config.max_position_embeddings

    def count_cut(self, prompts: Sequence[str]) -> int:
        """How many prompts are longer than max_tokens; only their beginning is scored."""
        return sum(len(ids) > self.max_tokens for ids in self.tokenizer(list(prompts)).input_ids)


class ImageTextScore(Metric):
    """Mean score of an image and its prompt, and its loss against AR's images; bounds by a bootstrap over images."""

    def __init__(self, name: str, network: Clip) -> None:
        """name: of the row's keys, <name>_score and <name>_score_loss."""
        self.name, self.network = f"{name}_score", network
        self._scores = ImagesMemo(self._score)
        self._hash = state_hash(network)

    def prepare(self, prompts: Sequence[str]) -> None:
        if not all(prompts):
            raise LanternError(
                f"{self.name} compares images with their prompts; give prompts=…, or leave the metric out"
            )

    def __call__(self, images: Images, prompts: Sequence[str]) -> dict[str, float]:
        return mean_interval(self._scores(images, prompts)).keys(self.name)

    def against(self, images: Images, plain: Images, prompts: Sequence[str]) -> dict[str, float]:
        """AR's score less the method's, a prompt's two images resampled together."""
        lost = self._scores(plain, prompts) - self._scores(images, prompts)
        return mean_interval(lost).keys(f"{self.name}_loss")

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {f"{self.name}_network": self._hash, f"{self.name}_resize": self.network.resize}

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        texts = list(dict.fromkeys(prompts))
        if not (cut := self.network.count_cut(texts)):
            return []
        limit = self.network.max_tokens
        return [f"{self.name} reads {limit} tokens of a prompt: {cut} of {len(texts)} prompts are longer and were cut"]

    def _score(self, images: Images, prompts: Sequence[str]) -> np.ndarray:  # [N]
        texts = (prompts[start : start + BATCH_SIZE] for start in range(0, len(prompts), BATCH_SIZE))
        parts = [self.network.scores(*both) for both in zip(batches(images, BATCH_SIZE), texts, strict=True)]
        return torch.cat(parts).double().cpu().numpy()


def load_vision(folder: str | Path, device: str = "cpu") -> VisionFeatures:
    """A vision network of `transformers` from a local folder or the Hub."""
    folder = find_folder(folder, "extractor.folder", VISION_BYTES)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        body = _read_pretrained(CLIPVisionModel if config.model_type.startswith("clip") else AutoModel, folder)
        pixels = _pixels_of(folder, body.config.image_size)
    except UNREADABLE as error:
        raise CheckpointError(
            f"{folder} holds no vision network ({first_line(error)}); download one of `transformers`, such as "
            f"facebook/dinov2-base, and give its folder"
        ) from error
    return _frozen(VisionFeatures(body, pixels), device)


def load_clip(folder: str | Path, tokenizer: str | Path | None = None, scale: float = 1.0, device: str = "cpu") -> Clip:
    """A CLIP of `transformers` from a local folder or the Hub. tokenizer: another one, for weights that have none."""
    folder = find_folder(folder, "network.folder", CLIP_BYTES)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        if config.model_type != "clip":
            raise ValueError(f"its model_type is {config.model_type}, not clip")
        body = _read_pretrained(CLIPModel, folder)
    except UNREADABLE as error:
        raise CheckpointError(
            f"{folder} holds no CLIP with both its image and its text side ({first_line(error)}); download one of "
            f"`transformers`, such as openai/clip-vit-base-patch32, and give its folder"
        ) from error
    usual = {"image_mean": CLIP_MEAN, "image_std": CLIP_STD}
    pixels = _pixels_of(folder, config.vision_config.image_size, usual)
    words = load_tokenizer(tokenizer or folder, config.text_config.vocab_size)
    return _frozen(Clip(body, words, pixels, scale), device)


def load_open_clip(
    checkpoint: str | Path, tokenizer: str | Path, heads: int = 16, scale: float = 1.0, device: str = "cpu"
) -> Clip:
    """A CLIP from a file of weights saved by open_clip, such as HPSv2's, a ViT-H/14. heads: of both towers' attention,
    which the weights do not show. tokenizer: a folder of `transformers` or a Hub id."""
    checkpoint = find_file(checkpoint, OPEN_CLIP_FILE, "network.checkpoint", CLIP_BYTES)
    state = read_weights(checkpoint)
    try:
        config = _open_clip_config(state, heads)
    except KeyError as error:
        raise CheckpointError(
            f"{checkpoint} holds no CLIP in open_clip's layout (it lacks {error.args[0]}); give one such as HPSv2's "
            f"HPS_v2.1_compressed.pt"
        ) from error
    with torch.device("meta"):
        body = CLIPModel(config)
    body = body.to_empty(device="cpu")
    for side in (body.text_model, body.vision_model):  # 0, 1, 2, …, stored by neither layout
        positions = side.embeddings.position_ids
        positions.copy_(torch.arange(positions.shape[1])[None])
    load_strictly(body, _transformers_state(state), checkpoint, "give a ViT of open_clip with one text tower")
    words = load_tokenizer(tokenizer, config.text_config.vocab_size)
    pixels = Pixels(config.vision_config.image_size, CLIP_MEAN, CLIP_STD)
    return _frozen(Clip(body.float(), words, pixels, scale), device)


def load_tokenizer(source: str | Path, vocab_size: int) -> Tokenizer:
    folder = find_folder(
        source, "network.tokenizer", TOKENIZER_BYTES, TOKENIZER_FILES, lambda found: any(found.glob("*.json"))
    )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        known = f"one of {len(tokenizer)} tokens"
    except (OSError, ValueError, KeyError) as error:
        tokenizer, known = (), f"none ({first_line(error)})"
    if len(tokenizer) != vocab_size:
        raise CheckpointError(
            f"the CLIP needs a tokenizer of {vocab_size} tokens and {folder} holds {known}; give the folder of its "
            f"tokenizer.json, or of vocab.json and merges.txt"
        )
    return tokenizer


def _read_pretrained(kind: Any, folder: str | Path) -> nn.Module:
    """In float32. ValueError for missing weights, which transformers would leave at random."""
    body, report = kind.from_pretrained(folder, local_files_only=True, dtype=torch.float32, output_loading_info=True)
    if report["missing_keys"]:
        raise ValueError(f"its weights lack {shortened(sorted(report['missing_keys']))}")
    return body


def _pixels_of(folder: str | Path, size: int, otherwise: Mapping[str, Sequence[float]] | None = None) -> Pixels:
    """By a folder's preprocessor_config.json; without that file by `otherwise`, or FileNotFoundError."""
    path = Path(folder) / "preprocessor_config.json"
    is_read = path.is_file() or otherwise is None
    settings = {**(otherwise or {}), **(json.loads(path.read_text()) if is_read else {})}
    crop = settings.get("crop_size", size)
    return Pixels(crop["height"] if isinstance(crop, dict) else crop, settings["image_mean"], settings["image_std"])


def _frozen(network: nn.Module, device: str) -> Any:
    return network.eval().requires_grad_(False).to(resolve_device(device))


def _open_clip_config(state: Mapping[str, Tensor], heads: int) -> CLIPConfig:
    """The sizes by the shapes of the weights."""
    vocab_size = len(state["token_embedding.weight"])
    patch = state["visual.conv1.weight"].shape[-1]
    side = round((len(state["visual.positional_embedding"]) - 1) ** 0.5)
    text = _tower_sizes(state, "transformer.resblocks.", heads) | {
        "vocab_size": vocab_size,
        "max_position_embeddings": len(state["positional_embedding"]),
        "eos_token_id": vocab_size - 1,
        "bos_token_id": vocab_size - 2,
    }
    vision = _tower_sizes(state, "visual.transformer.resblocks.", heads)
    vision |= {"image_size": side * patch, "patch_size": patch}
    return CLIPConfig(text_config=text, vision_config=vision, projection_dim=state["text_projection"].shape[1])


def _tower_sizes(state: Mapping[str, Tensor], prefix: str, heads: int) -> dict[str, object]:
    inner, width = state[f"{prefix}0.mlp.c_fc.weight"].shape
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": len(
            {name.removeprefix(prefix).split(".")[0] for name in state if name.startswith(prefix)}
        ),
        "num_attention_heads": heads,
        "hidden_act": "gelu",
    }


def _transformers_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of open_clip under the names of transformers: queries, keys and values split, projections transposed."""
    renamed: dict[str, Tensor] = {}
    for name, value in state.items():
        for theirs, ours in OPEN_CLIP_NAMES:
            name = name.replace(theirs, ours)
        if ".attn.in_proj_" in name:
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                renamed[name.replace(".attn.in_proj_", f".self_attn.{letter}_proj.")] = part
        else:
            is_transposed = name in ("text_projection.weight", "visual_projection.weight")
            renamed[name] = value.T.contiguous() if is_transposed else value
    return renamed
