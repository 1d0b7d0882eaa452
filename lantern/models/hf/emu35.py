"""Emu3.5-Image (2510.26583): Qwen3's decoder under names and a config of its own, 131,072 codes of an IBQ tokenizer
(2412.02692) behind its words, and a text tokenizer that its repository keeps as a list of byte pairs."""

from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path

from tokenizers import normalizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.convert_slow_tokenizer import TikTokenConverter

from lantern.errors import LanternError, explaining
from lantern.models.hf.code_colors import code_colors
from lantern.models.hf.pretrained import load_pretrained
from lantern.models.hf.prompt_format import PromptIds, fixed, id_of, text_ids
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.models.token_grid import grid_of

WORDS, VISION_WORDS = "emu3.tiktoken", "emu3_vision_tokens.txt"
PATTERN = (  # of its words: Qwen's, by which each digit is one
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)))
TOKEN_NAMES = "<|image start|>", "<|image token|>", "<|extra_200|>", "<|visual token 000000|>"  # … row end, code 0
TEMPLATE = "<|extra_203|>You are a helpful assistant for t2i task. USER: {} ASSISTANT: <|extra_100|>"
UNCONDITIONAL = "<|extra_203|>You are a helpful assistant. USER:  ASSISTANT: <|extra_100|>"
CODE_PIXELS = 16  # of a code's side


class Emu35Config(Qwen3Config):
    """Qwen3's, by the name that the released config.json gives."""

    model_type = "Emu3"


class BytePairs(TikTokenConverter):
    """Reads a tiktoken file without that package."""

    @staticmethod
    def load_tiktoken_bpe(path: str) -> dict[bytes, int]:
        lines = (line.split() for line in Path(path).read_bytes().splitlines() if line)
        return {b64decode(token): int(rank) for token, rank in lines}


def read_words(folder: Path) -> PreTrainedTokenizerBase:
    """Its text tokenizer, from the two lists beside the weights."""
    remedy = "copy the tokenizer's files there"
    with explaining(f"no readable {WORDS} and {VISION_WORDS} in {folder}", remedy):
        vision = [line.strip() for line in (folder / VISION_WORDS).read_text().splitlines() if line.strip()]
        made = BytePairs(str(folder / WORDS), PATTERN, extra_special_tokens=[*SPECIAL, *vision]).converted()
    made.normalizer = normalizers.NFC()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def load_emu35(
    checkpoint: str, codebook: str | None = None, image_size: int | Sequence[int] = 1024, num_codes: int = 131072,
    prefix_len: int = 256, cfg_scale: float = 5.0, dtype: str = "auto", device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    """codebook: the IBQ tokenizer's file, as of code_colors; image_size: its side, or height and width, which its own
    code lets the model choose."""
    grid = grid_of(image_size, CODE_PIXELS)
    model, text, made_of = load_pretrained(
        Qwen3ForCausalLM, checkpoint, dtype, device, config_class=Emu35Config, read_text=read_words
    )
    begin, image, row_end, first = (id_of(text, name) for name in TOKEN_NAMES)
    after = [begin, *(text_ids(text, f"{grid[0]}*{grid[1]}") if text else []), image]
    unconditional = [*(text_ids(text, UNCONDITIONAL) if text else []), *after]
    if first + num_codes > model.config.vocab_size:
        raise LanternError(
            f"{num_codes} codes from id {first} are more than vocab_size={model.config.vocab_size} of {checkpoint}; "
            "give model.num_codes of this checkpoint"
        )
    prompts = PromptIds(text, prefix_len, [], after, fixed(unconditional), TEMPLATE)
    vocabulary = ImageVocabulary.of_ids(model.model, model.lm_head, first, num_codes, row_end)
    images = code_colors(codebook, vocabulary.embed, grid)
    return HuggingFaceTarget(model.model, vocabulary, prompts, images, grid, cfg_scale, made_of)
