"""Small noise streams, and the picks that they hold."""

import torch
from torch import Tensor

from lantern.noise import Noise

WINDOW, CODES = 4, 16


def streams(seeds: list[int], codes: int = CODES) -> Noise:
    noise = Noise(len(seeds), codes, WINDOW, num_nodes=6)
    noise.admit(torch.arange(len(seeds)), torch.tensor(seeds))
    return noise


def picks(noise: Noise, depth: int) -> Tensor:
    """G [B, V] of the token behind a node at this depth."""
    return noise.noise_at_depths(torch.full((len(noise.seeds), 1), depth))[:, 0].log()
