"""A CLIP in miniature, random, as folders of `transformers` hold it."""

import string
from pathlib import Path

import torch
from transformers import CLIPConfig, CLIPModel, CLIPTokenizer

LETTERS = string.ascii_lowercase[:18]
WORDS = ["re", "red</w>", "<|startoftext|>", "<|endoftext|>"]
VOCAB_SIZE = 2 * len(LETTERS) + len(WORDS)
TEXT = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": 12, "bos_token_id": 38, "eos_token_id": 39}
SIZES = {"hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


def save_tokenizer(folder: Path) -> None:
    """Letters, and one word."""
    names = [*LETTERS, *(letter + "</w>" for letter in LETTERS), *WORDS]
    vocab = {name: number for number, name in enumerate(names)}
    CLIPTokenizer(vocab=vocab, merges=[("r", "e"), ("re", "d</w>")]).save_pretrained(folder)


def save_clip(folder: Path, seed: int = 0) -> CLIPModel:
    torch.manual_seed(seed)
    vision = SIZES | {"image_size": 8, "patch_size": 4}
    model = CLIPModel(CLIPConfig(text_config=SIZES | TEXT, vision_config=vision, projection_dim=8)).eval()
    for value in model.parameters():  # else all images look alike
        value.data += 0.3 * torch.randn_like(value)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return model
