"""X-Omni (2507.22058): Qwen2's decoder with an embedding and a head of its own for image tokens, whose ids follow those
of the words, and layers at both ends that only image tokens pass through. Its pixels are made by a diffusion model,
which is not run here."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2Model, Qwen2PreTrainedModel
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm, Qwen2RotaryEmbedding

from lantern.errors import CheckpointError
from lantern.models.hf.code_colors import CodeColors
from lantern.models.hf.pretrained import load_pretrained
from lantern.models.hf.prompt_format import PromptIds, fixed, id_of, text_ids
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.models.token_grid import grid_of

TOKEN_NAMES = "<SOM>", "<IMAGE>", "<MM-Token-0>"  # of the image's begin, of what its codes follow, of code 0
CODE_PIXELS = 16  # of a code's side
FILES = "model*.safetensors", "*.json", "*.txt"  # without the diffusion model's, which lie in folders
UNUSED = "lm_head.", "model.lm_norm.", "image_tokenizer."  # prefixes of weights: what follows words, and encodes images


class XOmniConfig(Qwen2Config):
    """num_mm_adap_layers, num_mm_head_layers: how many of num_hidden_layers, at the beginning and at the end, are for
    image tokens only; mm_vocab_size: image tokens; image_vocab_size: those that are codes, which come first."""

    model_type = "x-omni"
    num_mm_adap_layers: int = 4
    num_mm_head_layers: int = 4
    mm_vocab_size: int = 16448
    image_vocab_size: int = 16384


class XOmniLayer(Qwen2DecoderLayer):
    """skips: whether words bypass this layer; their keys and values are attended to nevertheless."""

    def __init__(self, config: XOmniConfig, index: int) -> None:
        super().__init__(config, index)
        shared = range(config.num_mm_adap_layers, config.num_hidden_layers - config.num_mm_head_layers)
        self.skips = index not in shared

    def forward(self, hidden_states: Tensor, words: Tensor | None = None, **given: object) -> Tensor:
        """hidden_states [B, T, D]; words [B, T]: which tokens are words, None: none is -> [B, T, D]."""
        made = super().forward(hidden_states, **given)
        return torch.where(words[..., None], hidden_states, made) if self.skips and words is not None else made


class XOmniModel(Qwen2Model):
    """Implements lantern.models.hf.target.PrefixReader. Features of words are normed as those of image tokens: only
    drafters read them."""

    def __init__(self, config: XOmniConfig) -> None:
        Qwen2PreTrainedModel.__init__(self, config)
        self.lm_embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.mm_embed_tokens = nn.Embedding(config.mm_vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(XOmniLayer(config, index) for index in range(config.num_hidden_layers))
        self.mm_norm = Qwen2RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = Qwen2RotaryEmbedding(config=config)
        self.has_sliding_layers = False
        self.post_init()

    @property
    def norm(self) -> nn.Module:
        return self.mm_norm

    def get_input_embeddings(self) -> nn.Embedding:
        return self.lm_embed_tokens

    def read_prefix(self, ids: Tensor) -> Tensor:  # [B, P] -> [B, P, D]
        count = self.config.vocab_size
        words, others = self.lm_embed_tokens(ids.clamp(max=count - 1)), self.mm_embed_tokens((ids - count).clamp(min=0))
        return torch.where((ids < count)[..., None], words, others)

    def told_of(self, ids: Tensor, length: int) -> dict[str, Tensor]:
        return {"words": F.pad(ids < self.config.vocab_size, (0, length - ids.shape[1]))}


class XOmniForImages(Qwen2PreTrainedModel):
    """With the head of image tokens alone."""

    config_class = XOmniConfig

    def __init__(self, config: XOmniConfig) -> None:
        super().__init__(config)
        self.model = XOmniModel(config)
        self.mm_head = nn.Linear(config.hidden_size, config.mm_vocab_size, bias=False)
        self.post_init()


def load_x_omni(
    checkpoint: str, image_size: int = 1152, prefix_len: int = 256, cfg_scale: float = 1.0, dtype: str = "auto",
    device: str = "auto",
) -> HuggingFaceTarget:  # fmt: skip
    grid = grid_of(image_size, CODE_PIXELS)
    model, text, made_of = load_pretrained(XOmniForImages, checkpoint, dtype, device, ignored=UNUSED, files=FILES)
    config = model.config
    begin, image, first = (id_of(text, name) for name in TOKEN_NAMES)
    if text and not config.vocab_size == first <= image:
        raise CheckpointError(
            f"in {checkpoint} code 0 has the id {first} and {TOKEN_NAMES[1]} has {image}, where image tokens begin at "
            f"vocab_size={config.vocab_size}; give the text tokenizer of this model"
        )
    after = [begin, *(text_ids(text, f"{grid[0]} {grid[1]}") if text else []), image]
    prompts = PromptIds(text, prefix_len, [], after, fixed(after))
    codes, body = slice(0, config.image_vocab_size), model.model
    vocabulary = ImageVocabulary(body.mm_embed_tokens.weight[codes], model.mm_head.weight[codes].clone())
    return HuggingFaceTarget(body, vocabulary, prompts, CodeColors(vocabulary.embed, grid), grid, cfg_scale, made_of)
