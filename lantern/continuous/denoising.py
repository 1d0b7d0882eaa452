"""The diffusion of continuous tokens: the cosine schedule (Nichol & Dhariwal, 2102.09672) and the respaced steps that
sample from it. A noisy token is x_t = sqrt(abar_t) x_0 + sqrt(1 - abar_t) e; a network predicts its velocity
sqrt(abar_t) e - sqrt(1 - abar_t) x_0 (Salimans & Ho, 2202.00512), of which x_0 and e are linear functions."""

from collections.abc import Callable
from math import pi, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

OFFSET = 0.008  # keeps the first step's noise from vanishing
MAX_BETA = 0.999


class Step(NamedTuple):
    """A sampling step: the next x is clean_weight x_0 + noisy_weight x_t + sigma e, with the predicted x_0."""

    timestep: int  # of training, from 0
    signal: float  # sqrt(abar)
    noise: float  # sqrt(1 - abar)
    clean_weight: float
    noisy_weight: float
    sigma: float


def cosine_schedule(num_steps: int) -> Tensor:
    """[T] float64: abar, the share of a token's variance that is left at each training step."""
    time = torch.arange(num_steps + 1, dtype=torch.float64) / num_steps
    level = ((time + OFFSET) / (1 + OFFSET) * pi / 2).cos() ** 2
    betas = (1 - level[1:] / level[:-1]).clamp(max=MAX_BETA)
    return (1 - betas).cumprod(0)


def sampling_steps(schedule: Tensor, num_steps: int) -> tuple[Step, ...]:
    """num_steps of the training steps, noisiest first, each the last of an equal part of the schedule [T].

    Variances are the upper choice, sigma^2 = beta: exact for unit-variance Gaussian tokens, and positive at the last
    step, where the lower choice is 0.
    """
    total = len(schedule)
    if not 1 <= num_steps <= total:
        raise ValueError(f"num_steps={num_steps} sampling steps of {total} training steps; give 1 to {total}")
    timesteps = [round((part + 1) * total / num_steps) - 1 for part in range(num_steps)]
    left = [1.0, *schedule[timesteps].tolist()]  # abar behind each step, then at it
    return tuple(_step(t, left[i + 1], left[i]) for i, t in reversed(list(enumerate(timesteps))))


def _step(timestep: int, left: float, left_behind: float) -> Step:
    beta = 1 - left / left_behind
    clean_weight = sqrt(left_behind) * beta / (1 - left)
    noisy_weight = sqrt(1 - beta) * (1 - left_behind) / (1 - left)
    return Step(timestep, sqrt(left), sqrt(1 - left), clean_weight, noisy_weight, sqrt(beta))


def last_mean(steps: tuple[Step, ...], noises: Tensor, velocity: Callable[[Tensor, int], Tensor]) -> Tensor:
    """The mean [M, C] of the token at the last step. noises [M, S, C]: x at the first step, then the noise that each
    step before the last adds; velocity(x [M, C], index of the step) -> [M, C]."""
    means: list[Tensor] = []
    for index, step in enumerate(steps):
        x = means[-1] + steps[index - 1].sigma * noises[:, index] if means else noises[:, 0]
        clean = step.signal * x - step.noise * velocity(x, index)
        means.append(step.clean_weight * clean + step.noisy_weight * x)
    return means[-1]
