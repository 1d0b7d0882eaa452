"""A tiny transformer over continuous tokens with random weights, and an untrained EAGLE drafter on it."""

from types import SimpleNamespace

import torch
from support.tiny_tasks import MemorySplit

from lantern.continuous.continuous_transformer import ContinuousTransformer, Standardisation
from lantern.continuous.latent_eagle import LatentEagle
from lantern.continuous.latent_sampling import LatentSampling
from lantern.continuous.target import ContinuousLlamaGenTarget
from lantern.drafters.eagle.network import EagleNetwork
from lantern.models.conditioners import WordFeatures
from lantern.models.llamagen.transformer import feed_forward_dim

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


def tiny_latent_eagle(target: ContinuousLlamaGenTarget, length: int = 3) -> LatentEagle:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = EagleNetwork(32, 2, feed_forward_dim(32, 16))
    return LatentEagle(network.double(), target, LatentSampling(cfg_scale=target.cfg_scale), length, "tiny-drafter")


class LatentSplits:
    """The same random latents in every split."""

    def split(self, name: str) -> MemorySplit:
        latents = torch.randn(8, 16, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return MemorySplit({"tokens": each, "caption": PROMPTS[i % 5]} for i, each in enumerate(latents))
