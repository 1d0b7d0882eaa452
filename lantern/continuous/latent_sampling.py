"""How continuous tokens are sampled: their noise, the diffusion head that turns it into tokens, and what drafting and
verification share. A token's law is its condition, the features of the guidance rows side by side [..., R D]; given all
noise before the last denoising step, the token is Gaussian."""

from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from lantern.continuous.diffusion_head import DiffusionHead
from lantern.errors import LanternError
from lantern.noise import Noise, Purpose, bits
from lantern.sampling import Sampling
from lantern.types import Drafter, DraftTree, Target, Verdict


@runtime_checkable
class LatentTarget(Target, Protocol):
    """A target whose tokens are latents and whose laws are conditions."""

    diffusion_head: DiffusionHead


@runtime_checkable
class LatentDrafter(Drafter, Protocol):
    """A drafter of latents."""

    sigma: float  # of the last denoising step, whose noise its drafts have


@dataclass(frozen=True)
class LatentSampling(Sampling):
    """Guidance alone is set: cfg_scale s guides the predicted noise as u + s (c - u)."""

    has_entropy = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.temperature, self.top_k, self.top_p) != (1.0, 0, 1.0):
            raise LanternError(
                f"sampling.temperature={self.temperature}, top_k={self.top_k}, top_p={self.top_p}: latents are drawn "
                "from the model's own law; set sampling.cfg_scale alone"
            )

    def noise(self, target: Target, drafter: Drafter, batch_size: int) -> "GaussianNoise":
        shape, device = TokenHead(target).shape, target.codebook.device
        return GaussianNoise(batch_size, shape, drafter.depth, device, drafter.num_nodes)

    def law(self, logits: Tensor) -> Tensor:
        """[..., R D] conditions, unchanged."""
        return logits


class GaussianNoise(Noise):
    """Standard normals by image seed, position, denoising step and channel, from the counter-based hash that codes draw
    their Gumbel noise from. A position's row holds those of S denoising steps, then of the last step."""

    def __init__(
        self, batch_size: int, shape: tuple[int, int], depth: int, device: torch.device | str = "cpu",
        num_nodes: int = 1,
    ) -> None:  # fmt: skip
        """shape: S + 1 and C."""
        self.shape = shape
        super().__init__(batch_size, shape[0] * shape[1], depth, device, num_nodes)

    def normals(self, count: int) -> Tensor:
        """[B, count, S + 1, C] of the tokens behind the nodes of a chain, the root's first."""
        return self.noise_of_chain(count).unflatten(-1, self.shape)

    def redraws(self, count: int) -> Tensor:
        """[B, count, C] of candidates for the one token that a round draws again."""
        numbers = torch.arange(count * self.shape[1], device=self.seeds.device)
        normals = standard_normals(self.seeds[:, None], Purpose.RESIDUAL, self.position[:, None], numbers)
        return normals.unflatten(-1, (count, -1))

    def _make_picks(self, images: Tensor, ahead: Tensor) -> Tensor:
        """Normals in place of exp(G)."""
        positions = self.position[images, None] + 1 + ahead
        return standard_normals(self.seeds[images][:, None, None], Purpose.PICK, positions[..., None], self._codes)


def standard_normals(seed: Tensor, purpose: Purpose, *counters: Tensor) -> Tensor:
    """float32, of the broadcast shape, each the quantile of one hashed number."""
    unit = (bits(seed, purpose, *counters).view(torch.uint32).double() + 0.5) * 2.0**-32
    return torch.special.ndtri(unit).float()


class TokenLaw(NamedTuple):
    """The Gaussian law of tokens given all noise before the last denoising step, and that step's noise."""

    mean: Tensor  # [B, N, C]
    sigma: float
    noise: Tensor  # [B, N, C]

    @property
    def tokens(self) -> Tensor:
        """[B, N, C]"""
        return self.mean + self.sigma * self.noise


class TokenHead:
    """The diffusion head of a target as verification and drafters run it: all nodes at once, timed."""

    def __init__(self, target: Target) -> None:
        if not isinstance(target, LatentTarget):
            raise LanternError(f"{type(target).__name__} has codes and no diffusion head; use parts for codes")
        self.target, self.seconds = target, 0.0

    def __call__(self, conditions: Tensor, normals: Tensor) -> TokenLaw:
        """conditions [B, N, R D], normals [B, N, S + 1, C] as GaussianNoise's: of the tokens behind the nodes."""
        start, head = perf_counter(), self.target.diffusion_head
        rows = conditions.flatten(0, 1).unflatten(-1, (self.target.guidance, -1))
        noises = normals[:, :, :-1].flatten(0, 1).to(torch.promote_types(conditions.dtype, torch.float32))
        mean = head.mean(rows, noises, self.target.cfg_scale).unflatten(0, conditions.shape[:2])
        self.seconds += perf_counter() - start
        return TokenLaw(mean, self.sigma, normals[:, :, -1].to(mean.dtype))

    @property
    def shape(self) -> tuple[int, int]:
        """S + 1, C: of the noise of a token."""
        return len(self.target.diffusion_head.steps) + 1, self.target.diffusion_head.token_dim

    @property
    def sigma(self) -> float:  # of the last step
        return self.target.diffusion_head.steps[-1].sigma


class LatentProposals:
    """Drafts are drawn as the target draws: mean + sigma e, with the noise of their position and the drafter's mean. A
    position is judged once, so that its e stays independent of all that was committed before."""

    needs_draft_law = False

    def __init__(self, noise: GaussianNoise) -> None:
        self.normals = noise.normals


def verdict_on_chain(tree: DraftTree, follows: Tensor, recovered: Tensor, picks: Tensor) -> Verdict:
    """follows [B, N]: whether the draft behind each node is accepted; recovered [B, N, C]: what replaces it if not;
    picks [B, N, C]: the target's own token, which follows a node without a draft."""
    if tree.width is None or tree.width > 1:
        raise LanternError("latents are drafted in chains, this tree branches; use drafter=latent_jacobi")
    last = (~tree.is_padding).sum(1) - 1  # [B]
    order = torch.arange(follows.shape[1], device=follows.device)
    accepted = (follows & (order < last[:, None])).long().cumprod(1).sum(1)
    rows = torch.arange(len(last), device=last.device)
    token = torch.where((accepted < last)[:, None], recovered[rows, accepted], picks[rows, accepted])
    path = torch.where(order <= accepted[:, None], order, -1)
    return Verdict(path, accepted, token, picks)
