"""A tiny transformer over continuous tokens with random weights, and an untrained EAGLE drafter on it."""

from types import SimpleNamespace

import torch

from lantern.continuous.continuous_transformer import ContinuousTransformer, Standardisation
from lantern.continuous.target import ContinuousLlamaGenTarget
from lantern.models.conditioners import WordFeatures

PROMPTS = ["a b", "c", "d e f", "a c", "b"]


def tiny_latent_target(cfg_scale: float = 2.0, coupling: float = 1.0) -> ContinuousLlamaGenTarget:
    """16 latents of 4 channels in float64, with random weights. coupling: how strongly a token depends on those before
    it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        architecture = {
            "dim": 32, "num_layers": 2, "num_heads": 2, "grid": (4, 4), "caption_dim": 8, "prefix_len": 4,
            "multiple_of": 16, "vocab_size": 8,
        }  # fmt: skip
        head = {"width": 16, "num_blocks": 1, "num_training_steps": 20, "num_steps": 4}
        standardisation, codes = Standardisation([0.0] * 4, [1.0] * 4), torch.randn(8, 4)
        transformer = ContinuousTransformer(codes, standardisation, 2, head, architecture)
        with torch.no_grad():
            for weight in transformer.parameters():
                if weight.dim() == 2:
                    torch.nn.init.normal_(weight, std=0.3)
            transformer.tok_embeddings.weight.mul_(coupling)
        images = SimpleNamespace(codebook=codes, decode=lambda tokens: tokens, standardisation=standardisation)
    return ContinuousLlamaGenTarget(transformer.double(), WordFeatures(list("abcdef"), 8, 4), images, cfg_scale, "tiny")
