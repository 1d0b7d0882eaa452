"""Emu3-Gen (2409.18869) through transformers: a Llama-like body whose vocabulary contains the codes, an end-of-row
token, a negative prompt as the unconditional one, and a video VQ decoder."""

from torch import Tensor, nn
from transformers import Emu3Config, Emu3ForConditionalGeneration
from transformers.models.emu3.modeling_emu3 import Emu3VQVAE

from lantern.errors import LanternError
from lantern.models.hf.pretrained import load_pretrained
from lantern.models.hf.prompt_format import PromptIds, fixed, id_of, text_ids
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.models.token_grid import check_image_size

BEGIN, IMAGE, CODES, ROW_END = "<|extra_203|>", "<|image start|>", "<|image token|>", "<|extra_200|>"
FIRST_CODE = "<|visual token 000000|>"
NEGATIVE = (
    "lowres, bad anatomy, bad hands, text, error, missing fingers, extra digit, fewer digits, cropped, worst quality, "
    "low quality, normal quality, jpeg artifacts, signature, watermark, username, blurry."
)


class Emu3Images(nn.Module):
    """The VQ decoder of an Emu3 model as an image tokenizer."""

    def __init__(self, vqmodel: Emu3VQVAE, grid: tuple[int, int]) -> None:
        super().__init__()
        self.vqmodel, self.grid = vqmodel, grid

    @property
    def codebook(self) -> Tensor:  # [V, C]
        return self.vqmodel.quantize.embedding.weight.float()

    def decode(self, tokens: Tensor) -> Tensor:  # [B, L] -> [B, 3, H, W]
        return ((self.vqmodel.decode(tokens.unflatten(1, self.grid)).float() + 1) / 2).clamp(0, 1)


def load_emu3(
    checkpoint: str, geometry: dict, image_size: int = 720, prefix_len: int = 192,
    quality: str = " masterpiece, film grained, best quality.", negative: str = NEGATIVE, cfg_scale: float = 3.0,
    dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """geometry: text_config and vq_config of Emu3Config; quality: appended to every prompt. Raises CheckpointError, and
    LanternError for a negative prompt that does not fit into prefix_len tokens."""
    config = Emu3Config(**{"vocabulary_map": {}, **geometry})
    downsampling = 2 ** (len(config.vq_config.channel_multiplier) - 1)
    check_image_size(image_size, downsampling)
    model, text, made_of = load_pretrained(Emu3ForConditionalGeneration, config, checkpoint, dtype, device)
    side = image_size // downsampling
    size, negative_ids = (text_ids(text, words) for words in (f"{side}*{side}", negative)) if text else ([], [])
    begin, image, opened, row_end, first = (id_of(text, name) for name in (BEGIN, IMAGE, CODES, ROW_END, FIRST_CODE))
    after = [image, *size, opened]
    unconditional = [begin, *negative_ids, *after]
    if len(unconditional) > prefix_len:
        raise LanternError(
            f"model.negative takes {len(unconditional)} tokens with those around it, more than "
            f"model.prefix_len={prefix_len}; give model.prefix_len={len(unconditional)} or a shorter model.negative"
        )
    prompts = PromptIds(text, prefix_len, [begin], after, fixed(unconditional), template="{}" + quality)
    embeddings, images = model.model.text_model.embed_tokens, Emu3Images(model.model.vqmodel, (side, side))
    codes = slice(first, first + config.vq_config.codebook_size)
    vocabulary = ImageVocabulary(
        embed=embeddings.weight[codes], head=model.lm_head.weight[codes].clone(), row_end=embeddings.weight[row_end]
    )
    return HuggingFaceTarget(model.model.text_model, vocabulary, prompts, images, (side, side), cfg_scale, made_of)
