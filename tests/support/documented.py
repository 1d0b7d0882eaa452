"""Tiny random checkpoints with processors of their own, which documented scripts read as the released ones."""

from collections.abc import Callable
from pathlib import Path

import diffusers
import torch
import transformers as hf
from support.families import CODES, EMU3_SPECIAL, FAMILIES, SIDE, save_text_tokenizer
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast, ProcessorMixin
from transformers.models.chameleon.image_processing_chameleon import ChameleonImageProcessor
from transformers.models.emu3.image_processing_emu3 import Emu3ImageProcessor
from transformers.models.glm_image.image_processing_pil_glm_image import GlmImageImageProcessorPil
from transformers.models.janus.image_processing_janus import JanusImageProcessor

from lantern.models.hf.families import JANUS_NAMES

CERTAIN = {"do_sample": True, "top_k": 1}  # drawn, and certain
EMU3_NAMED = {
    "boi_token": "<|image start|>", "eoi_token": "<|image end|>", "image_wrapper_token": "<|image token|>",
    "eof_token": "<|extra_201|>", "image_token": "<image>",
}  # fmt: skip


def write_janus(folder: Path) -> None:
    named = {"image_token": "<image_placeholder>", "boi_token": JANUS_NAMES[1], "eoi_token": "<end_of_image>"}
    FAMILIES["janus_pro"].make(folder)
    text = _with_processor(folder, hf.JanusProcessor, JanusImageProcessor(), JANUS_NAMES, named, pad=JANUS_NAMES[2])
    ids = {"bos_token_id": text.convert_tokens_to_ids(JANUS_NAMES[0]), "pad_token_id": text.pad_token_id}
    kept = {"boi_token_id": text.convert_tokens_to_ids(JANUS_NAMES[1])}
    GenerationConfig(**ids, **CERTAIN, guidance_scale=5, generation_kwargs=kept).save_pretrained(folder)


def write_emu3(folder: Path) -> None:
    model = FAMILIES["emu3"].make(folder)
    special = [*EMU3_SPECIAL, "<|extra_201|>", "<|image end|>", "<|extra_204|>", "<image>"]
    given = {"bos_token": "<|extra_203|>", "eos_token": "<|extra_204|>", "pad": "<unk>"}
    text = _with_processor(folder, hf.Emu3Processor, Emu3ImageProcessor(), special, EMU3_NAMED, **given)
    model.config.vocabulary_map = text.get_vocab()
    model.generation_config.update(**CERTAIN, eos_token_id=text.eos_token_id, pad_token_id=text.pad_token_id)
    model.save_pretrained(folder)


def write_anole(folder: Path) -> None:
    model, first = FAMILIES["anole"].make(folder), FAMILIES["anole"].first
    named = {"boi_token": "<racm3:break>", "eoi_token": "<eoss>", "image_token": "<image>"}
    _with_processor(folder, hf.ChameleonProcessor, ChameleonImageProcessor(), ["<sep>"], named, sep_token="<sep>")
    model.config.vocabulary_map = {f"IMGIMG{chr(65 + code)}Z": first + code for code in range(CODES)}
    model.generation_config.update(**CERTAIN, pad_token_id=0)
    model.save_pretrained(folder)


def write_lumina(folder: Path) -> None:
    FAMILIES["lumina_mgpt"].make(folder)
    GenerationConfig(**CERTAIN, pad_token_id=0).save_pretrained(folder)


def write_glm_image(folder: Path) -> None:
    model = FAMILIES["glm_image"].make(folder)
    text = AutoTokenizer.from_pretrained(folder / "processor", padding_side="left", pad_token="<bos>")
    template = "{% for m in messages %}{% for c in m['content'] %}{{ c['text'] }}{% endfor %}{% endfor %}"
    processor = hf.GlmImageProcessor(GlmImageImageProcessorPil(), text, chat_template=template)
    model.generation_config.update(**CERTAIN, suppress_tokens=[CODES, CODES + 1], eos_token_id=None, pad_token_id=0)
    write_diffusion(folder, processor=processor, vision_language_encoder=model)


def write_diffusion(folder: Path, **others: object) -> None:
    """GLM-Image's diffusion stage. others: processor and vision_language_encoder, of the AR stage."""
    torch.manual_seed(0)
    sizes = {"num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 2, "in_channels": 4, "out_channels": 4}
    transformer = diffusers.GlmImageTransformer2DModel(
        patch_size=2, text_embed_dim=16, time_embed_dim=16, condition_dim=8, prior_vq_quantizer_codebook_size=CODES,
        **sizes,
    )  # fmt: skip
    vae = diffusers.AutoencoderKL(
        block_out_channels=(8, 8, 8, 8), latent_channels=4, norm_num_groups=4, latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4, down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4,
    )  # fmt: skip
    text = hf.T5EncoderModel(hf.T5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2))
    parts = {"tokenizer": hf.ByT5Tokenizer(), "text_encoder": text, "vae": vae}
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler()
    diffusers.GlmImagePipeline(transformer=transformer, scheduler=scheduler, **parts, **others).save_pretrained(folder)


def _with_processor(
    folder: Path, kind: type[ProcessorMixin], images: object, special: list[str], named: dict[str, str], **given: str
) -> PreTrainedTokenizerFast:
    missing = [token for token in named.values() if token not in special]
    save_text_tokenizer(folder, [*special, *missing], extra_special_tokens=named, **given)
    text = AutoTokenizer.from_pretrained(folder)
    kind(images, text).save_pretrained(folder)
    return text


# what writes a family's checkpoint, its Hub id in the script, and sizes in it that are too large
DOCUMENTED: dict[str, tuple[Callable[[Path], None], str, dict[str, str]]] = {
    "janus": (write_janus, "deepseek-community/Janus-Pro-1B", {}),
    "emu3": (write_emu3, "Emu3-community/Emu3-Gen-hf", {"=True)\n": f"=True, image_area={64 * SIDE * SIDE})\n"}),
    "lumina": (write_lumina, "Alpha-VLLM/Lumina-mGPT-7B-768", {"* 48": f"* {SIDE}", "8196)": f"{4 + CODES})"}),
    "anole": (write_anole, "leloy/Anole-7b-v0.1-hf", {"1024": "64"}),
    "glm_image": (write_glm_image, "zai-org/GLM-Image", {"1024": str(32 * SIDE), "bfloat16": "float32", "30": "2"}),
}
