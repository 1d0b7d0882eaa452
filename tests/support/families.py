"""Tiny random models of every family, saved as their checkpoints are and loaded as their yamls say, and the plain
sequence that each reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file, save_file
from support.configs import composed
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from lantern.models.chameleon import LUMINA2_NAMES, ROW_END, ChameleonVQGAN
from lantern.models.hf.families import EMU3_NAMES, JANUS_NAMES, LIQUID_NAMES, LIQUID_UNCONDITIONAL, SIMPLEAR_NAMES
from lantern.models.hf.target import HuggingFaceTarget
from lantern.models.movqgan import MoVQGAN
from lantern.pipeline import Pipeline, pipelines

PROMPTS = ["a red sphere", "a blue ring on wood", "sand"]
WORDS = ["a", "red", "blue", "sphere", "ring", "on", "wood", "sand", "an", "image", "of", "generate", "according", "to"]
WORDS += [*"0123456789*.,:", "<unk>"]
PIXELS = {"glm_image": 32, "simplear": 16}  # of a code's side; of the others 2
SIDE, LENGTH, CODES = 4, 32, 24  # every tiny image has 4 x 4 codes of 24, behind up to 32 ids
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
BODY = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2} | HEADS
VQGAN = {"channels": 32, "multipliers": [1, 1], "num_res_blocks": 1, "z_channels": 8}
VQGAN |= {"codebook_size": 24, "code_dim": 8}
VQ = {"base_channels": 32, "num_res_blocks": 1}
LATENT_VQ = VQ | {"latent_channels": 8, "embed_dim": 8, "num_embeddings": 24}
CHAMELEON = BODY | {"vocab_size": 9000, "vq_config": LATENT_VQ | {"channel_multiplier": [1], "resolution": 8}}
LUMINA2_SPECIAL = [*LUMINA2_NAMES, "<reserved08706>", "<reserved08801>", "<end>"]
LUMINA2_FIRST = len(WORDS) + 8  # three ids are no tokens
LUMINA2 = CHAMELEON | {"vocab_size": LUMINA2_FIRST + CODES + 1}
JANUS_VISION = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 2}
JANUS_PROJECTION = {"projection_dim": 32, "image_token_embed_dim": 32, "num_hidden_layers": 2}
JANUS = {
    "text_config": BODY | {"vocab_size": 64, "model_type": "llama"},
    "vision_config": JANUS_VISION | {"projection_dim": 32, "num_image_tokens": 16},
    "vq_config": LATENT_VQ | JANUS_PROJECTION | {"channel_multiplier": [1, 1]},
}
EMU3_VQ = VQ | {"hidden_size": 32, "attn_resolutions": [], "codebook_size": 24, "temporal_downsample_factor": 1}
EMU3 = {
    "text_config": BODY | {"vocab_size": 96, "pad_token_id": 0},
    "vq_config": EMU3_VQ | {"channel_multiplier": [1, 1]},
}
EMU3_SPECIAL = [*EMU3_NAMES[:4], *(f"<|visual token {code:06d}|>" for code in range(CODES))]
GLM_IMAGE = {  # the ids of codes are the first of the text's, as released
    "text_config": BODY | {"vocab_size": 96, "vision_vocab_size": CODES + 2, "pad_token_id": 0} | {
        "eos_token_id": CODES + 1,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [0, 1, 1],
        },
    },
    "vision_config": {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "image_size": 64},
    "vq_config": {"embed_dim": 8, "num_embeddings": CODES, "latent_channels": 16},
    "image_start_token_id": CODES, "image_end_token_id": CODES + 1, "image_token_id": CODES + 2,
}  # fmt: skip
LEVELS = [4, 3, 2]  # of a finite scalar quantisation with 24 codes
SIMPLEAR = BODY | {
    "vocab_size": len(WORDS) + 3 + CODES,  # its tokenizer adds one
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
LIQUID = BODY | {"vocab_size": 64 + CODES, "head_dim": 8}  # as in its yaml, the head is the embedding
EMU3_FIRST = len(WORDS) + 4
GLM_IMAGE_SPECIAL = ["<bos>", "<eos>", "<image>", "<sop>", "<eop>"]
GLM_IMAGE_TOKENS = {
    "bos_token": "<bos>",
    "extra_special_tokens": {"image_token": "<image>", "grid_bos_token": "<sop>", "grid_eos_token": "<eop>"},
}


def save_text_tokenizer(
    folder: Path, special: list[str], pad: str | None = None, first: Sequence[str] = (), **named: object
) -> None:
    """Words and digits; what it does not know is one token. named: special tokens by their attributes."""
    words = {word: index for index, word in enumerate([*first, *special, *WORDS] if first else [*WORDS, *special])}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    digits = pre_tokenizers.Digits(individual_digits=True)
    raw.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), digits])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>", pad_token=pad, **named)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.save_pretrained(folder)


def save(model: transformers.PreTrainedModel, folder: Path, special: list[str]) -> transformers.PreTrainedModel:
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


def make_chameleon(folder: Path) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    save_vqgan(folder)
    config = transformers.ChameleonConfig(vocabulary_map={}, **CHAMELEON)
    return save(transformers.ChameleonForConditionalGeneration(config), folder, [])


def make_lumina(folder: Path) -> transformers.PreTrainedModel:
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


def make_lumina2(folder: Path) -> transformers.PreTrainedModel:
    """As released, without a begin of its own."""
    torch.manual_seed(3)
    averages = {"ema_decoder.num_updates": torch.tensor(3), "loss.logvar": torch.zeros(1)}
    torch.save(MoVQGAN(**VQGAN).state_dict() | averages, folder / "vqgan.ckpt")
    torch.manual_seed(0)
    model = transformers.ChameleonForConditionalGeneration(transformers.ChameleonConfig(vocabulary_map={}, **LUMINA2))
    save(model, folder, LUMINA2_SPECIAL)
    save_text_tokenizer(folder, LUMINA2_SPECIAL, eos_token="<end>")
    return model


def make_janus(folder: Path) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    model = transformers.JanusForConditionalGeneration(transformers.JanusConfig(**JANUS))
    return save(model, folder, list(JANUS_NAMES))


def make_emu3(folder: Path) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.Emu3Config(vocabulary_map={}, **EMU3)
    return save(transformers.Emu3ForConditionalGeneration(config), folder, EMU3_SPECIAL)


def make_glm_image(folder: Path) -> transformers.PreTrainedModel:
    """In the layout of the released folder."""
    torch.manual_seed(0)
    model = transformers.GlmImageForConditionalGeneration(transformers.GlmImageConfig(**GLM_IMAGE))
    codes = [f"<|code {code}|>" for code in range(CODES)]
    save(model, folder / "vision_language_encoder", [])
    save_text_tokenizer(folder / "processor", GLM_IMAGE_SPECIAL, first=codes, **GLM_IMAGE_TOKENS)
    return model


def make_simplear(folder: Path) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return save(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SIMPLEAR)), folder, list(SIMPLEAR_NAMES))


def make_liquid(folder: Path) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    save_vqgan(folder)
    model = transformers.GemmaForCausalLM(transformers.GemmaConfig(**LIQUID))
    return save(model, folder, [*LIQUID_NAMES, LIQUID_UNCONDITIONAL])


def save_t5(folder: Path, hidden_size: int = 32) -> None:
    """With a decoder and a head, as the released one is saved."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "d_model": hidden_size, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    kind = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0}
    transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, **kind)).save_pretrained(folder)
    save_text_tokenizer(folder, ["<pad>"], pad="<pad>")


@dataclass(frozen=True, eq=False)
class Family:
    """A yaml of conf/model, a tiny checkpoint for it, and the id of its first code and of its row ends."""

    model: str
    make: Callable[[Path], transformers.PreTrainedModel]
    changes: dict[str, object]
    first: int = 0
    row_end: int | None = None

    def __str__(self) -> str:
        return self.model

    def logits(self, model: transformers.PreTrainedModel, prefix: list[int], codes: list[int]) -> Tensor:
        """The slow twin: [24] behind a prefix and some codes, by the body's own forward on plain ids."""
        if self.model == "janus_pro":
            return janus_logits(model, prefix, codes)
        if self.model == "glm_image":
            return glm_image_logits(model, prefix, codes)
        ids = list(prefix)
        for place, code in enumerate(codes, start=1):
            ids.append(self.first + code)
            if self.row_end is not None and place % SIDE == 0:
                ids.append(self.row_end)
        features = model.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
        return features @ model.lm_head.weight[self.first : self.first + CODES].T


def glm_image_logits(model: transformers.PreTrainedModel, prefix: list[int], codes: list[int]) -> Tensor:
    """At the positions that the model itself gives, here those of its cache for the steps behind the prefix."""
    inner, ids = model.model, torch.tensor([prefix])
    before = inner.get_rope_index(ids, torch.tensor([[1, SIDE, SIDE], [1, 2, 2]]), torch.tensor([2]))[0]
    after = inner._cached_decode_position_ids.movedim(1, 0)[..., : len(codes)]
    x = inner.get_input_embeddings()(torch.tensor([[*prefix, *codes]]))
    places = torch.cat([before, after], dim=2)
    hidden = inner.language_model(inputs_embeds=x, position_ids=places).last_hidden_state
    return model.lm_head(hidden)[0, -1, :CODES]


def janus_logits(model: transformers.PreTrainedModel, prefix: list[int], codes: list[int]) -> Tensor:
    x = model.get_input_embeddings()(torch.tensor([prefix]))
    if codes:
        x = torch.cat([x, model.prepare_embeddings_for_image_generation(torch.tensor([codes]))], dim=1)
    hidden = model.model.language_model(inputs_embeds=x).last_hidden_state
    return model.model.generation_head(hidden)[0, -1]


WITH_VQGAN = {"tokenizer": VQGAN}
LUMINA2_CHANGES = {"first_code": LUMINA2_FIRST, "tokenizer": VQGAN}
EMU3_CHANGES = {"negative": "a blue ring of sand"}
FAMILIES = {
    family.model: family
    for family in (
        Family("anole", make_chameleon, WITH_VQGAN, 4),
        Family("lumina_mgpt", make_lumina, WITH_VQGAN, 4, ROW_END),
        Family("lumina_mgpt2", make_lumina2, LUMINA2_CHANGES, LUMINA2_FIRST, len(WORDS) + 1),
        Family("janus_pro", make_janus, {}),
        Family("emu3", make_emu3, EMU3_CHANGES, EMU3_FIRST, EMU3_FIRST - 1),
        Family("glm_image", make_glm_image, {"preview_side": 2, "cfg_scale": 2.0}),
        Family("simplear", make_simplear, {"levels": LEVELS, "negative": "sand"}, len(WORDS) + 3),
        Family("liquid", make_liquid, {"tokenizer": VQGAN, "first_code": 64}, 64),
    )
}


class Loaded(NamedTuple):
    family: Family
    folder: Path
    target: HuggingFaceTarget
    slow: transformers.PreTrainedModel


def config(family: Family, folder: Path, *overrides: str) -> DictConfig:
    guided = ["sampling.cfg_scale=2.0"] if family.model == "glm_image" else []  # which it is not as released
    cfg = composed("evaluate", f"model={family.model}", "dtype=float32", "device=cpu", *guided, *overrides)
    OmegaConf.set_struct(cfg, False)
    changes = {"checkpoint": str(folder), "prefix_len": LENGTH, **family.changes}
    if "image_size" in cfg.model:
        changes["image_size"] = PIXELS.get(family.model, 2) * SIDE
    if "tokenizer" in changes:
        changes["tokenizer"] = {"checkpoint": str(folder), "file": "vqgan.ckpt", **changes["tokenizer"]}
    cfg.model = OmegaConf.merge(cfg.model, changes)
    return cfg


def pipeline_of(loaded: Loaded, *overrides: str) -> Pipeline:
    cfg = config(loaded.family, loaded.folder, "acceptance=exact", *overrides)
    parts = {name: instantiate(cfg[name]) for name in ("drafter", "acceptance", "verification", "sampling")}
    return pipelines(loaded.target, **parts)(instantiate(cfg.tree))
