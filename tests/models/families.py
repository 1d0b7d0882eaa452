"""Tiny random models of every family, saved as their checkpoints are, and the plain sequence that each reads."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import (
    ChameleonConfig,
    ChameleonForConditionalGeneration,
    Emu3Config,
    Emu3ForConditionalGeneration,
    GemmaConfig,
    GemmaForCausalLM,
    JanusConfig,
    JanusForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from lantern.models import emu3, janus, liquid
from lantern.models.chameleon import loading as chameleon
from lantern.models.chameleon.vqgan import ChameleonVQGAN
from lantern.models.hf.target import HuggingFaceTarget

WORDS = "a red blue sphere ring on wood sand an image of generate according to the following prompt".split()
VQGAN = {
    "channels": 32,
    "multipliers": [1, 1],
    "num_res_blocks": 1,
    "z_channels": 8,
    "codebook_size": 24,
    "code_dim": 8,
}
BODY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SIDE = 4  # every tiny image has 4 x 4 codes
EMU3_NAMES = [emu3.BEGIN, emu3.IMAGE, emu3.CODES, emu3.ROW_END]
EMU3_CODES = [f"<|visual token {code:06d}|>" for code in range(24)]
JANUS_NAMES = [janus.BEGIN, janus.IMAGE, janus.PAD]
LIQUID_NAMES = [liquid.BEGIN, liquid.IMAGE, liquid.NOTHING]
JANUS_VQ = {
    "base_channels": 32,
    "channel_multiplier": [1, 1],
    "num_res_blocks": 1,
    "latent_channels": 8,
    "embed_dim": 8,
}
EMU3_VQ = {
    "base_channels": 32,
    "channel_multiplier": [1, 1],
    "num_res_blocks": 1,
    "hidden_size": 32,
    "attn_resolutions": [],
    "codebook_size": 24,
    "temporal_downsample_factor": 1,
}


@dataclass(frozen=True)
class Family:
    """How to save a tiny checkpoint, what to override in the family's yaml to load it, and its slow twin's parts."""

    model: str  # the yaml in conf/model
    make: Callable[[Path], PreTrainedModel]
    overrides: dict[str, object]
    logits: Callable[[PreTrainedModel, Tensor], Tensor]  # whole sequence of inputs [1, T] -> [1, T, codes]
    ids: Callable[[PreTrainedModel, list[int]], list[int]]  # codes -> what stands in the sequence for them

    @property
    def name(self) -> str:
        return self.model


def save_text_tokenizer(folder: Path, special: list[str], size: int = 64) -> None:
    words = {word: index for index, word in enumerate([*WORDS, *"0123456789*.,:", "<unk>", *special])}
    assert len(words) <= size
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>")
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.save_pretrained(folder)


def save(model: PreTrainedModel, folder: Path, special: list[str]) -> PreTrainedModel:
    """Widens the weights, so that laws are peaked and differ by what was read, and writes the checkpoint."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "vq" not in name:
                weight.mul_(5)
    model.save_pretrained(folder)
    save_text_tokenizer(folder, special)
    return model.eval()


def save_vqgan(folder: Path) -> None:
    torch.manual_seed(3)
    torch.save({"state_dict": ChameleonVQGAN(**VQGAN).state_dict()}, folder / "vqgan.ckpt")


CHAMELEON_GEOMETRY = BODY | {
    "vocab_size": 9000,
    "vq_config": {
        "base_channels": 32,
        "channel_multiplier": [1],
        "num_res_blocks": 1,
        "latent_channels": 8,
        "embed_dim": 8,
        "num_embeddings": 24,
        "resolution": 8,
    },
}
JANUS_GEOMETRY = {
    "text_config": BODY | {"vocab_size": 64, "model_type": "llama"},
    "vision_config": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 8,
        "patch_size": 2,
        "projection_dim": 32,
        "num_image_tokens": 16,
    },
    "vq_config": JANUS_VQ
    | {"num_embeddings": 24, "projection_dim": 32, "image_token_embed_dim": 32, "num_hidden_layers": 2},
}
EMU3_GEOMETRY = {"text_config": BODY | {"vocab_size": 96, "pad_token_id": 0}, "vq_config": EMU3_VQ}
LIQUID_GEOMETRY = BODY | {"vocab_size": 64 + 24, "head_dim": 8, "tie_word_embeddings": False}


def make_chameleon(folder: Path) -> PreTrainedModel:
    torch.manual_seed(0)
    save_vqgan(folder)
    model = ChameleonForConditionalGeneration(ChameleonConfig(vocabulary_map={}, **CHAMELEON_GEOMETRY))
    return save(model, folder, [])


def make_janus(folder: Path) -> PreTrainedModel:
    torch.manual_seed(0)
    return save(JanusForConditionalGeneration(JanusConfig(**JANUS_GEOMETRY)), folder, JANUS_NAMES)


def make_emu3(folder: Path) -> PreTrainedModel:
    torch.manual_seed(0)
    model = Emu3ForConditionalGeneration(Emu3Config(vocabulary_map={}, **EMU3_GEOMETRY))
    return save(model, folder, [*EMU3_NAMES, *EMU3_CODES])


def make_liquid(folder: Path) -> PreTrainedModel:
    torch.manual_seed(0)
    save_vqgan(folder)
    return save(GemmaForCausalLM(GemmaConfig(**LIQUID_GEOMETRY)), folder, LIQUID_NAMES)
