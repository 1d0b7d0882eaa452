"""Random numbers of a training step: a pure function of (seed, step), so that resuming needs no generator state."""

import torch
from torch import Tensor


def step_generator(seed: int, step: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for one step; streams differ between steps and seeds."""
    return torch.Generator(device).manual_seed((seed * 0x9E3779B97F4A7C15 + step * 0xC2B2AE3D27D4EB4F) % 2**63)


def batch_uniform(
    count: int, shape: tuple[int, ...], seed: int, step: int, rank: int, world_size: int, device: torch.device | str
) -> Tensor:
    """[count, *shape] uniform in [0, 1), keyed by (seed, step, image). Image i of a process is number
    i * world_size + rank of the step, so that its numbers do not depend on the number of processes."""
    numbers = (i * world_size + rank for i in range(count))
    step_seeds = step_generator(seed, step)
    base = int(torch.randint(2**31, (), generator=step_seeds))
    return torch.stack([torch.rand(shape, generator=step_generator(base, n, device), device=device) for n in numbers])
