"""CLIP (2103.00020), or a network trained from it such as PickScore (2305.01569), from a local folder of
`transformers`."""

from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from transformers import AutoConfig, AutoTokenizer, CLIPModel, PreTrainedTokenizerBase

from lantern.errors import CheckpointError
from lantern.metrics.networks.pixels import Pixels, pixels_of
from lantern.models.checkpoints import shortened
from lantern.runtime.hardware import resolve_device

CLIP_PIXELS = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


class Clip(nn.Module):
    """Scores images by the cosine of their embedding and their prompt's, times `scale`."""

    def __init__(self, body: CLIPModel, tokenizer: PreTrainedTokenizerBase, pixels: Pixels, scale: float) -> None:
        super().__init__()
        self.body, self.tokenizer, self.pixels, self.scale = body, tokenizer, pixels, scale
        self.resize = pixels.resize

    @torch.inference_mode()
    def scores(self, images: Tensor, prompts: Sequence[str]) -> Tensor:  # [B, 3, H, W] in [0, 1] -> [B]
        texts = self.tokenizer(
            list(prompts),
            padding=True,
            truncation=True,
            max_length=self.body.config.text_config.max_position_embeddings,
            return_tensors="pt",
        ).to(self.body.device)
        words = self.body.get_text_features(texts.input_ids, texts.attention_mask).pooler_output
        shown = self.body.get_image_features(self.pixels(images)).pooler_output
        return self.scale * cosine_similarity(shown, words)


def load_clip(folder: str | Path, tokenizer: str | Path | None = None, scale: float = 1.0, device: str = "cpu") -> Clip:
    """The network of a local folder, nothing downloaded. tokenizer: a folder of its own, where that of the weights has
    none; device: as resolve_device reads it. CheckpointError if anything is missing or belongs to another model."""
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        if config.model_type != "clip":
            raise ValueError(f"its model_type is {config.model_type}, not clip")
        local = {"local_files_only": True, "dtype": torch.float32, "output_loading_info": True}
        body, found = CLIPModel.from_pretrained(folder, **local)
        if found["missing_keys"]:  # transformers would leave them at random
            raise ValueError(f"its weights lack {shortened(sorted(found['missing_keys']))}")
    except (OSError, ValueError, RuntimeError, SafetensorError, UnpicklingError) as error:
        raise CheckpointError(
            f"{folder} holds no CLIP with both its image and its text side ({str(error).splitlines()[0].rstrip('.')}); "
            f"download one of `transformers`, such as openai/clip-vit-base-patch32, and give its folder"
        ) from error
    pixels = pixels_of(folder, config.vision_config.image_size, CLIP_PIXELS)
    words = load_tokenizer(tokenizer or folder, config.text_config.vocab_size)
    return Clip(body, words, pixels, scale).eval().requires_grad_(False).to(resolve_device(device))


def load_tokenizer(folder: str | Path, vocab_size: int) -> PreTrainedTokenizerBase:
    """CheckpointError for a tokenizer of another size: transformers makes an empty one where a folder has none."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        known = f"one of {len(tokenizer)} tokens"
    except (OSError, ValueError, KeyError) as error:
        tokenizer, known = (), f"none ({str(error).splitlines()[0].rstrip('.')})"
    if len(tokenizer) != vocab_size:
        raise CheckpointError(
            f"the CLIP needs a tokenizer of {vocab_size} tokens and {folder} holds {known}; give the folder of its "
            f"tokenizer.json, or of vocab.json and merges.txt"
        )
    return tokenizer
