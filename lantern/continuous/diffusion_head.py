"""MAR's diffusion head (Li et al., 2406.11838): the law of a continuous token given a condition, by a short diffusion.
Unlike MAR's, its last step adds noise, so that given all earlier noises the token is Gaussian.

The cosine schedule is Nichol & Dhariwal's (2102.09672). A noisy token is x_t = sqrt(abar_t) x_0 + sqrt(1 - abar_t) e;
the network predicts its velocity sqrt(abar_t) e - sqrt(1 - abar_t) x_0 (2202.00512), in which x_0 and e are linear."""

from collections.abc import Callable
from math import pi, sqrt
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OFFSET = 0.008  # keeps the first step's noise from vanishing
MAX_BETA = 0.999
FREQUENCIES = 64  # sines and cosines that encode a timestep
MAX_PERIOD = 10000.0
TIME_SCALE = 1000.0  # timesteps are encoded as if training had a thousand


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
    time = torch.arange(num_steps + 1, dtype=torch.float64, device="cpu") / num_steps  # read when a model is built
    level = ((time + OFFSET) / (1 + OFFSET) * pi / 2).cos() ** 2
    betas = (1 - level[1:] / level[:-1]).clamp(max=MAX_BETA)
    return (1 - betas).cumprod(0)


def sampling_steps(schedule: Tensor, num_steps: int) -> tuple[Step, ...]:
    """num_steps of the training steps, noisiest first, each the last of an equal part of the schedule [T]. Variances
    are the upper choice, sigma^2 = beta: exact for Gaussian tokens of unit variance, and above 0 at the last step."""
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


class ModulatedBlock(nn.Module):
    """A residual block whose norm is shifted and scaled, and whose output is gated, from outside (AdaLN)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, shift: Tensor, scale: Tensor, gate: Tensor) -> Tensor:  # [M, W] each
        hidden = torch.addcmul(shift, self.norm(x), 1 + scale)
        return torch.addcmul(x, gate, self.fc2(F.silu(self.fc1(hidden))))


class DiffusionHead(nn.Module):
    """Predicts the velocity instead of the noise e: at the first step, where sqrt(abar) is 5e-4, an error of e would be
    2000 times as large in x_0. Guidance is the same, since e is linear in the velocity at given x_t. The modulations of
    timestep and condition are added, unlike MAR's, so that those of a condition are computed once for all steps."""

    def __init__(
        self, condition_dim: int, token_dim: int, width: int = 256, num_blocks: int = 3, num_training_steps: int = 100,
        num_steps: int = 25,
    ) -> None:  # fmt: skip
        super().__init__()
        self.token_dim, self.num_blocks = token_dim, num_blocks
        schedule = cosine_schedule(num_training_steps)
        self.steps = sampling_steps(schedule, num_steps)
        self.register_buffer("schedule", schedule.float(), persistent=False)  # [T]
        self.register_buffer("times", _time_table(num_training_steps), persistent=False)  # [T, 2 x FREQUENCIES]
        sampled = self.times[[step.timestep for step in self.steps]]
        self.register_buffer("sampled_times", sampled, persistent=False)  # [S, 2 x FREQUENCIES]
        self.by_time = _modulation(2 * FREQUENCIES, width, num_blocks)
        self.by_condition = _modulation(condition_dim, width, num_blocks)
        self.token_in = nn.Linear(token_dim, width)
        self.blocks = nn.ModuleList(ModulatedBlock(width) for _ in range(num_blocks))
        self.norm = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.token_out = _zero(nn.Linear(width, token_dim))

    def loss(self, condition: Tensor, tokens: Tensor, generator: torch.Generator, draws: int = 1) -> Tensor:
        """Mean squared error of the velocity at `draws` timesteps of each token; condition [M, D], tokens [M, C]."""
        tokens = tokens.repeat_interleave(draws, 0)
        timesteps = torch.randint(len(self.schedule), (len(tokens),), generator=generator).to(tokens.device)
        noise = torch.randn(tokens.shape, generator=generator).to(tokens)
        left = self.schedule[timesteps, None]
        signal, spread = left.sqrt(), (1 - left).sqrt()
        modulation = self.by_time(self.times)[timesteps] + self.by_condition(condition).repeat_interleave(draws, 0)
        velocity = self.velocity(signal * tokens + spread * noise, modulation)
        return F.mse_loss(velocity.float(), signal * noise - spread * tokens)

    def mean(self, condition: Tensor, noises: Tensor, cfg_scale: float) -> Tensor:
        """The mean [M, C] of the tokens, to which the last step adds its sigma times a standard normal. condition
        [M, R, D], conditional rows first; noises [M, S, C] as last_mean's. Guidance is u + s (c - u)."""
        rows, condition = condition.shape[1], condition.to(self.times.dtype)
        by_time = self.by_time(self.sampled_times)  # [S, (3 blocks + 2) W]
        by_condition = self.by_condition(condition.flatten(0, 1))  # [M R, (3 blocks + 2) W]

        def velocity(x: Tensor, index: int) -> Tensor:
            modulation = by_time[index] + by_condition
            of_rows = self.velocity(x.repeat_interleave(rows, 0), modulation).unflatten(0, (-1, rows))
            return torch.lerp(of_rows[:, -1], of_rows[:, 0], cfg_scale)  # without guidance rows: one and the same

        return last_mean(self.steps, noises, velocity)

    def velocity(self, x: Tensor, modulation: Tensor) -> Tensor:
        """x [M, C]; modulation [M, (3 blocks + 2) W]: what shifts, scales and gates each block, then the final norm."""
        hidden = self.token_in(x)
        *of_blocks, shift, scale = modulation.chunk(3 * self.num_blocks + 2, dim=-1)
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, *of_blocks[3 * index : 3 * index + 3])
        return self.token_out(torch.addcmul(shift, self.norm(hidden), 1 + scale))


def _modulation(inputs: int, width: int, num_blocks: int) -> nn.Sequential:
    """[..., inputs] -> [..., (3 blocks + 2) W], at first zeros: blocks pass on what they read."""
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), _zero(nn.Linear(width, (3 * num_blocks + 2) * width)))


def _zero(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _time_table(num_steps: int) -> Tensor:
    """[T, 2 x FREQUENCIES] sines and cosines of each timestep."""
    frequency = MAX_PERIOD ** (-torch.arange(FREQUENCIES) / FREQUENCIES)
    angle = torch.arange(num_steps)[:, None] * (TIME_SCALE / num_steps) * frequency
    return torch.cat([angle.cos(), angle.sin()], dim=1)
