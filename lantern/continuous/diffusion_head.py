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
NODES_AT_ONCE = 64  # the modulations of all steps of so many nodes are held in memory


class LastStep(NamedTuple):
    """The last denoising step: the token is mean + sigma e with e standard normal."""

    mean: Tensor  # [M, C]
    sigma: float  # > 0


class ModulatedBlock(nn.Module):
    """A residual block whose norm is shifted and scaled, and whose output is gated, by the condition (AdaLN)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, shift: Tensor, scale: Tensor, gate: Tensor) -> Tensor:  # [M, W] each
        hidden = torch.addcmul(shift, self.norm(x), 1 + scale)
        return torch.addcmul(x, gate, self.fc2(F.silu(self.fc1(hidden))))


class DiffusionHead(nn.Module):
    """Predicts the velocity instead of the noise e: at the first step, where sqrt(abar) is 5e-4, an error of e would be
    2000 times as large in x_0. Guidance is the same, since e is linear in the velocity at given x_t."""

    def __init__(
        self, condition_dim: int, token_dim: int, width: int = 256, num_blocks: int = 3, num_training_steps: int = 100,
        num_steps: int = 25,
    ) -> None:  # fmt: skip
        super().__init__()
        self.token_dim, self.num_blocks = token_dim, num_blocks
        schedule = cosine_schedule(num_training_steps)
        self.steps = sampling_steps(schedule, num_steps)
        self.register_buffer("schedule", schedule.float(), persistent=False)  # [T]
        self.register_buffer("time_table", _time_table(num_training_steps), persistent=False)  # [T, 2 x FREQUENCIES]
        self.token_in, self.condition_in = nn.Linear(token_dim, width), nn.Linear(condition_dim, width)
        self.time_in = nn.Sequential(nn.Linear(2 * FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))
        self.modulation = nn.Linear(width, (3 * num_blocks + 2) * width)
        self.blocks = nn.ModuleList(ModulatedBlock(width) for _ in range(num_blocks))
        self.norm = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.token_out = nn.Linear(width, token_dim)
        for zero in (self.modulation, self.token_out):  # at first blocks pass on their input, the velocity is 0
            nn.init.zeros_(zero.weight)
            nn.init.zeros_(zero.bias)

    def loss(self, condition: Tensor, tokens: Tensor, generator: torch.Generator) -> Tensor:
        """Mean squared error of the velocity at a drawn timestep for each row; condition [M, D], tokens [M, C]."""
        timesteps = torch.randint(len(self.schedule), (len(tokens),), generator=generator).to(tokens.device)
        noise = torch.randn(tokens.shape, generator=generator).to(tokens)
        left = self.schedule[timesteps, None]
        signal, spread = left.sqrt(), (1 - left).sqrt()
        times, conditions = self.time_in(self.time_table[timesteps]), self.condition_in(condition)
        velocity = self.velocity(signal * tokens + spread * noise, self.modulation(F.silu(times + conditions)))
        return F.mse_loss(velocity.float(), signal * noise - spread * tokens)

    def last_step(self, condition: Tensor, noises: Tensor, cfg_scale: float) -> LastStep:
        """condition [M, R, D], conditional rows first; noises [M, S, C] as last_mean's. Guidance is u + s (c - u)."""
        if noises.shape[1:] != (len(self.steps), self.token_dim):
            raise ValueError(f"noises {tuple(noises.shape)}, expected [M, {len(self.steps)}, {self.token_dim}]")
        parts = zip(condition.split(NODES_AT_ONCE), noises.split(NODES_AT_ONCE), strict=True)
        means = [last_mean(self.steps, noise, self._guided(part, cfg_scale)) for part, noise in parts]
        return LastStep(torch.cat(means), self.steps[-1].sigma)

    def _guided(self, condition: Tensor, cfg_scale: float) -> Callable[[Tensor, int], Tensor]:
        """The guided velocity of x [M, C] at a sampling step, the modulations of all steps computed at once."""
        rows = condition.shape[1]
        times = self.time_in(self.time_table[[step.timestep for step in self.steps]])  # [S, W]
        embedded = self.condition_in(condition.to(times.dtype)).flatten(0, 1)  # [M R, W]
        modulations = self.modulation(F.silu(times[:, None] + embedded))  # [S, M R, ...]

        def velocity(x: Tensor, index: int) -> Tensor:
            of_rows = self.velocity(x.repeat_interleave(rows, 0), modulations[index]).unflatten(0, (-1, rows))
            return torch.lerp(of_rows[:, -1], of_rows[:, 0], cfg_scale)  # without guidance rows: one and the same

        return velocity

    def velocity(self, x: Tensor, modulation: Tensor) -> Tensor:
        """x [M, C]; modulation [M, (3 blocks + 2) W]: what shifts, scales and gates each block, then the final norm."""
        hidden = self.token_in(x)
        *of_blocks, shift, scale = modulation.chunk(3 * self.num_blocks + 2, dim=-1)
        for block, parts in zip(self.blocks, zip(*[iter(of_blocks)] * 3, strict=True), strict=True):
            hidden = block(hidden, *parts)
        return self.token_out(torch.addcmul(shift, self.norm(hidden), 1 + scale))


def _time_table(num_steps: int) -> Tensor:
    """[T, 2 x FREQUENCIES] sines and cosines of each timestep."""
    frequency = MAX_PERIOD ** (-torch.arange(FREQUENCIES) / FREQUENCIES)
    angle = torch.arange(num_steps)[:, None] * (TIME_SCALE / num_steps) * frequency
    return torch.cat([angle.cos(), angle.sin()], dim=1)
