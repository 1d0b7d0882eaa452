"""Tiny random models of every family, saved as their checkpoints are, and the plain sequence that each reads."""

import lantern  # noqa: F401  (first: see its docstring)

# isort: split
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
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
    T5Config,
    T5ForConditionalGeneration,
)

from lantern.models import emu3, janus, liquid
from lantern.models.chameleon import ChameleonVQGAN

WORDS = ["a", "red", "blue", "sphere", "ring", "on", "wood", "sand", "an", "image", "of", "generate", "according", "to"]
SMALL = {"num_res_blocks": 1, "base_channels": 32}
VQGAN = {
    "channels": 32,
    "multipliers": [1, 1],
    "num_res_blocks": 1,
    "z_channels": 8,
    "codebook_size": 24,
    "code_dim": 8,
}
BODY = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
BODY |= {"num_attention_heads": 4, "num_key_value_heads": 2}
SIDE = 4  # every tiny image has 4 x 4 codes
EMU3_NAMES = [emu3.BEGIN, emu3.IMAGE, emu3.CODES, emu3.ROW_END]
EMU3_CODES = [f"<|visual token {code:06d}|>" for code in range(24)]
JANUS_NAMES = [janus.BEGIN, janus.IMAGE, janus.PAD]
LIQUID_NAMES = [liquid.BEGIN, liquid.IMAGE, liquid.NOTHING]
JANUS_VQ = SMALL | {"channel_multiplier": [1, 1], "latent_channels": 8, "embed_dim": 8}
EMU3_VQ = SMALL | {"channel_multiplier": [1, 1], "hidden_size": 32, "attn_resolutions": [], "codebook_size": 24}
EMU3_VQ |= {"temporal_downsample_factor": 1}


def save_text_tokenizer(folder: Path, special: list[str], pad: str | None = None) -> None:
    """Words and digits; what it does not know is one token."""
    words = {word: index for index, word in enumerate([*WORDS, *"0123456789*.,:", "<unk>", *special])}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>", pad_token=pad)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.save_pretrained(folder)


def save(model: PreTrainedModel, folder: Path, special: list[str]) -> PreTrainedModel:
    """Widens the weights, so that laws are peaked and differ by what was read, and writes the checkpoint."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "vq" not in name:
                weight.mul_(3)
    model.save_pretrained(folder)
    save_text_tokenizer(folder, special)
    return model.eval()


def save_vqgan(folder: Path) -> None:
    torch.manual_seed(3)
    torch.save({"state_dict": ChameleonVQGAN(**VQGAN).state_dict()}, folder / "vqgan.ckpt")


CHAMELEON_VQ = JANUS_VQ | {"channel_multiplier": [1], "num_embeddings": 24, "resolution": 8}
CHAMELEON_GEOMETRY = BODY | {"vocab_size": 9000, "vq_config": CHAMELEON_VQ}
JANUS_VISION = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 2}
JANUS_VISION |= {"projection_dim": 32, "num_image_tokens": 16}
JANUS_IMAGES = {"num_embeddings": 24, "projection_dim": 32, "image_token_embed_dim": 32, "num_hidden_layers": 2}
JANUS_GEOMETRY = {
    "text_config": BODY | {"vocab_size": 64, "model_type": "llama"},
    "vision_config": JANUS_VISION,
    "vq_config": JANUS_VQ | JANUS_IMAGES,
}
EMU3_GEOMETRY = {"text_config": BODY | {"vocab_size": 96, "pad_token_id": 0}, "vq_config": EMU3_VQ}
LIQUID_GEOMETRY = BODY | {"vocab_size": 64 + 24, "head_dim": 8}  # as in its yaml, the head is the embedding


def make_chameleon(folder: Path) -> PreTrainedModel:
    torch.manual_seed(0)
    save_vqgan(folder)
    model = ChameleonForConditionalGeneration(ChameleonConfig(vocabulary_map={}, **CHAMELEON_GEOMETRY))
    return save(model, folder, [])


def make_lumina(folder: Path) -> PreTrainedModel:
    """As released: the norms of queries and keys have one row for all heads."""
    model = make_chameleon(folder)
    stored = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(4)
    for name, weight in model.named_parameters():
        if "q_norm" in name or "k_norm" in name:
            row = torch.rand(1, weight.shape[1], generator=generator)
            weight.data.copy_(row)
            stored[name] = row
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return model


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


TINY_T5 = {"hidden_size": 32, "head_dim": 8, "feed_forward_dim": 48}
TINY_T5 |= {"num_layers": 2, "num_heads": 4, "vocab_size": 64}


def save_t5(folder: Path, hidden_size: int = 32) -> None:
    """With a decoder and a head, as the released one is saved."""
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=64, d_model=hidden_size, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(folder)
    save_text_tokenizer(folder, ["<pad>"], pad="<pad>")


def chameleon_logits(model: PreTrainedModel, prefix: list[int], codes: list[int]) -> Tensor:
    """[24] by the body's own forward on plain ids; its own head hides image logits."""
    ids = torch.tensor([prefix + [4 + code for code in codes]])
    return model.model(input_ids=ids).last_hidden_state[0, -1] @ model.lm_head.weight[4:28].T


def lumina_logits(model: PreTrainedModel, prefix: list[int], codes: list[int]) -> Tensor:
    ids = list(prefix)
    for place, code in enumerate(codes):
        ids += [4 + code] + ([8803] if (place + 1) % SIDE == 0 else [])
    return model.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1] @ model.lm_head.weight[4:28].T


def janus_logits(model: PreTrainedModel, prefix: list[int], codes: list[int]) -> Tensor:
    x = model.get_input_embeddings()(torch.tensor([prefix]))
    if codes:
        x = torch.cat([x, model.prepare_embeddings_for_image_generation(torch.tensor([codes]))], dim=1)
    hidden = model.model.language_model(inputs_embeds=x).last_hidden_state
    return model.model.generation_head(hidden)[0, -1]


def emu3_logits(model: PreTrainedModel, prefix: list[int], codes: list[int]) -> Tensor:
    first = len(WORDS) + len("0123456789*.,:") + 1 + len(EMU3_NAMES)
    row_end = first - 1
    ids = list(prefix)
    for place, code in enumerate(codes):
        ids += [first + code] + ([row_end] if (place + 1) % SIDE == 0 else [])
    return model(input_ids=torch.tensor([ids])).logits[0, -1, first : first + 24]


def liquid_logits(model: PreTrainedModel, prefix: list[int], codes: list[int]) -> Tensor:
    ids = torch.tensor([prefix + [64 + code for code in codes]])
    return model(input_ids=ids).logits[0, -1, 64:88]


@dataclass(frozen=True, eq=False)
class Family:
    """A yaml of conf/model, a tiny checkpoint for it, and the slow twin: logits behind a prefix and some codes."""

    model: str
    make: Callable[[Path], PreTrainedModel]
    changes: dict[str, object]
    logits: Callable[[PreTrainedModel, list[int], list[int]], Tensor]

    def __str__(self) -> str:
        return self.model


FAMILIES = {
    family.model: family
    for family in (
        Family("anole", make_chameleon, {"geometry": CHAMELEON_GEOMETRY, "tokenizer": VQGAN}, chameleon_logits),
        Family("lumina_mgpt", make_lumina, {"geometry": CHAMELEON_GEOMETRY, "tokenizer": VQGAN}, lumina_logits),
        Family("janus_pro", make_janus, {"geometry": JANUS_GEOMETRY}, janus_logits),
        Family("emu3", make_emu3, {"geometry": EMU3_GEOMETRY, "negative": "a blue ring of sand"}, emu3_logits),
        Family(
            "liquid", make_liquid, {"geometry": LIQUID_GEOMETRY, "tokenizer": VQGAN, "first_code": 64}, liquid_logits
        ),
    )
}
