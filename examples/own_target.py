"""A target of your own, a decoder of transformers: python examples/own_target.py
Random weights and letters stand in for a model: replace `body`, `head`, `Letters` and `Greys` by yours."""

from types import SimpleNamespace

import torch
from transformers import LlamaConfig, LlamaModel

import lantern
from lantern.models.hf.prompt_format import PromptIds, fixed
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary

CODES, SIDE = 256, 8  # ids 0 … 255 are the image's codes, the next 27 are letters, the last begins the image
BEGIN = CODES + 27


class Letters:
    """In place of the model's text tokenizer."""

    def __call__(self, text, **_):
        return SimpleNamespace(input_ids=[CODES + ord(letter) % 27 for letter in text])


class Greys:
    """In place of the image tokenizer: a code is a shade of grey."""

    codebook = torch.linspace(0, 1, CODES)[:, None]  # [V, C], in which codes are compared

    def decode(self, tokens):  # [B, L] -> images [B, 3, H, W] in [0, 1]
        return self.codebook[tokens].view(-1, 1, SIDE, SIDE).expand(-1, 3, -1, -1)


torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
body = LlamaModel(LlamaConfig(vocab_size=BEGIN + 1, **sizes))
head = torch.randn(CODES, 64)  # the rows of the model's head that predict codes
target = HuggingFaceTarget(
    body,
    ImageVocabulary(body.embed_tokens.weight[:CODES], head),
    PromptIds(Letters(), 24, before=[], after=[BEGIN], unconditional=fixed([BEGIN])),  # a prompt has 23 letters at most
    Greys(),
    grid=(SIDE, SIDE),
    cfg_scale=2.0,
)
model = lantern.load(target)
plain = model.generate(["a red sphere"], seed=1, drafter="none")
fast = model.generate(["a red sphere"], seed=1, method="jacobi")
print(f"the same tokens: {torch.equal(plain.tokens, fast.tokens)}")
print(f"passes of the model: {len(plain.statistics.rounds)}, {len(fast.statistics.rounds)}")
fast.pil()[0].resize((128, 128)).save("own_target.png")
