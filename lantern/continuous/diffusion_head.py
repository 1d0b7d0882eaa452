"""MAR's diffusion head (Li et al., 2406.11838): the law of a continuous token given a condition, by a short diffusion.
Unlike MAR's, its last step adds noise, so that given all earlier noises the token is Gaussian."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lantern.continuous.denoising import cosine_schedule, last_mean, sampling_steps

FREQUENCIES = 64  # sines and cosines that encode a timestep
MAX_PERIOD = 10000.0
TIME_SCALE = 1000.0  # timesteps are encoded as if training had a thousand


class LastStep(NamedTuple):
    """The last denoising step: the token is mean + sigma e with e standard normal."""

    mean: Tensor  # [M, C]
    sigma: float  # > 0


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

    def last_step(self, condition: Tensor, noises: Tensor, cfg_scale: float) -> LastStep:
        """condition [M, R, D], conditional rows first; noises [M, S, C] as last_mean's. Guidance is u + s (c - u)."""
        if noises.shape[1:] != (len(self.steps), self.token_dim):
            raise ValueError(f"noises {tuple(noises.shape)}, expected [M, {len(self.steps)}, {self.token_dim}]")
        mean = last_mean(self.steps, noises, self._guided(condition.to(self.times.dtype), cfg_scale))
        return LastStep(mean, self.steps[-1].sigma)

    def _guided(self, condition: Tensor, cfg_scale: float) -> Callable[[Tensor, int], Tensor]:
        """The guided velocity of x [M, C] at a sampling step."""
        rows = condition.shape[1]
        by_time = self.by_time(self.sampled_times)  # [S, (3 blocks + 2) W]
        by_condition = self.by_condition(condition.flatten(0, 1))  # [M R, (3 blocks + 2) W]

        def velocity(x: Tensor, index: int) -> Tensor:
            modulation = by_time[index] + by_condition
            of_rows = self.velocity(x.repeat_interleave(rows, 0), modulation).unflatten(0, (-1, rows))
            return torch.lerp(of_rows[:, -1], of_rows[:, 0], cfg_scale)  # without guidance rows: one and the same

        return velocity

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
