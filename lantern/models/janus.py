"""Janus-Pro (2501.17811) through transformers: a Llama body with a generation head, code embeddings and a VQ-16
decoder of its own."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import JanusConfig, JanusForConditionalGeneration
from transformers.models.janus.modeling_janus import JanusVQVAE

from lantern.models.hf.pretrained import load_pretrained
from lantern.models.hf.prompt_format import PromptIds, id_of
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary

BEGIN, IMAGE, PAD = "<｜begin▁of▁sentence｜>", "<begin_of_image>", "<｜▁pad▁｜>"
TEMPLATE = "<|User|>: {}\n\n<|Assistant|>:"


class JanusImages(nn.Module):
    """The VQ decoder of a Janus model as an image tokenizer; codes are looked up as unit vectors."""

    def __init__(self, vqmodel: JanusVQVAE) -> None:
        super().__init__()
        self.vqmodel = vqmodel

    @property
    def codebook(self) -> Tensor:  # [V, C]
        return F.normalize(self.vqmodel.quantize.embedding.weight.float(), dim=-1)

    def decode(self, tokens: Tensor) -> Tensor:  # [B, L] -> [B, 3, H, W]
        return ((self.vqmodel.decode(tokens).float() + 1) / 2).clamp(0, 1)


def load_janus(
    checkpoint: str, geometry: dict, prefix_len: int = 128, cfg_scale: float = 5.0, dtype: str = "auto",
    device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """geometry: text_config, vision_config and vq_config of JanusConfig. Raises CheckpointError."""
    config = JanusConfig(**geometry)
    ignored = ("lm_head.", "model.vision_model.", "model.aligner.")  # for image inputs
    whole, text, made_of = load_pretrained(
        JanusForConditionalGeneration, config, checkpoint, dtype, device, ignored=ignored
    )
    model = whole.model
    del model.vision_model, model.aligner
    begin, image, pad = (id_of(text, name) for name in (BEGIN, IMAGE, PAD))
    prompts = PromptIds(
        text,
        prefix_len,
        before=[begin],
        after=[image],
        # unmasked pads, as in training
        unconditional=lambda ids: [
            begin,
            *[pad] * (len(ids) - 2),
            image,
        ],
        template=TEMPLATE,
    )
    head = model.generation_head
    with torch.no_grad():
        embed = model.generation_aligner(model.generation_embeddings.weight)
    vocabulary = ImageVocabulary(
        embed,
        head.vision_head.weight,
        head.vision_head.bias,
        hidden=nn.Sequential(head.proj_out, head.activation_fn),
    )
    side = config.vq_config.num_patches
    images = JanusImages(model.vqmodel)
    return HuggingFaceTarget(model.language_model, vocabulary, prompts, images, (side, side), cfg_scale, made_of)
