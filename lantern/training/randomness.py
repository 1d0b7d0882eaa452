"""Random numbers of a training step: a pure function of (seed, step), so that resuming needs no generator state."""

import torch


def step_generator(seed: int, step: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator for one step. Steps and seeds do not share streams."""
    return torch.Generator(device).manual_seed((seed * 0x9E3779B97F4A7C15 + step * 0xC2B2AE3D27D4EB4F) % 2**63)
