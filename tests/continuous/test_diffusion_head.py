"""The schedule against its formulas written out, exact laws of sampling, and a head that learns a law."""

from math import cos, pi, sqrt

import pytest
import torch
from torch import Tensor

from lantern.continuous.diffusion_head import DiffusionHead, Step, cosine_schedule, last_mean, sampling_steps

TRAINING_STEPS, SAMPLING_STEPS = 100, 25
SCHEDULE = cosine_schedule(TRAINING_STEPS)
CONDITION, CHANNELS, STEPS = 6, 3, 5


def test_the_schedule_is_the_cosine_of_the_paper():
    """Catches an index shifted by one, and a beta that is not clipped."""
    left, written_out = 1.0, []
    for t in range(1, TRAINING_STEPS + 1):
        now, before = (cos((s / TRAINING_STEPS + 0.008) / 1.008 * pi / 2) ** 2 for s in (t, t - 1))
        left *= 1 - min(1 - now / before, 0.999)
        written_out.append(left)
    torch.testing.assert_close(SCHEDULE, torch.tensor(written_out, dtype=torch.float64))


def test_all_steps_have_the_posterior_of_the_training_schedule():
    """q(x_{t-1} | x_t, x_0) by Bayes' rule from the product of two Gaussians. Catches exchanged weights."""
    for step in sampling_steps(SCHEDULE, TRAINING_STEPS)[:-1]:
        left, behind = SCHEDULE[step.timestep].item(), SCHEDULE[step.timestep - 1].item()
        alpha = left / behind
        precision = alpha / (1 - alpha) + 1 / (1 - behind)  # of x_{t-1}: from x_t, and from x_0
        assert step.noisy_weight == pytest.approx(sqrt(alpha) / (1 - alpha) / precision)
        assert step.clean_weight == pytest.approx(sqrt(behind) / (1 - behind) / precision)
        assert step.sigma == pytest.approx(sqrt(1 - alpha))


def exact_law(steps: tuple[Step, ...], mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of sampled tokens if the network knows that theirs are Gaussian: sampling is then an affine
    map of its noises, read off by passing zeros and unit vectors through it."""
    dim = len(mean)
    eye = torch.eye(dim, dtype=mean.dtype)

    def velocity(x: Tensor, index: int) -> Tensor:
        signal, noise = steps[index].signal, steps[index].noise
        gain = signal * covariance @ torch.linalg.inv(signal**2 * covariance + noise**2 * eye)
        clean = mean + (x - signal * mean) @ gain.T  # E[x_0 | x_t]
        return signal * (x - signal * clean) / noise - noise * clean

    basis = torch.eye(len(steps) * dim, dtype=mean.dtype).view(-1, len(steps), dim)
    centre = last_mean(steps, torch.zeros_like(basis[:1]), velocity)
    moved = last_mean(steps, basis, velocity) - centre  # [S C, C]
    return centre[0], moved.T @ moved + steps[-1].sigma ** 2 * eye


def test_exact_velocities_of_unit_variance_reproduce_the_law():
    """Any number of steps is exact. Catches a wrong weight, sigma or order of noises, and a last step without noise."""
    mean, eye = torch.tensor([1.5, -0.5], dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    for num_steps in (5, SAMPLING_STEPS):
        centre, covariance = exact_law(sampling_steps(SCHEDULE, num_steps), mean, eye)
        torch.testing.assert_close(centre, mean, atol=2e-3, rtol=0)  # 5e-4 of the mean is left in x at the first step
        torch.testing.assert_close(covariance, eye, atol=1e-6, rtol=0)


def random_head() -> DiffusionHead:
    """A small head whose zero-initialised layers are random, in float64."""
    torch.manual_seed(0)
    head = DiffusionHead(CONDITION, CHANNELS, width=16, num_blocks=2, num_steps=STEPS).double()
    for layer in (head.by_time[-1], head.by_condition[-1], head.token_out):
        torch.nn.init.normal_(layer.weight, std=0.3)
        torch.nn.init.normal_(layer.bias, std=0.3)
    return head.requires_grad_(False)


def normals(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_nodes_are_computed_as_one_by_one():
    """Catches rows of guidance or steps that are mixed between nodes."""
    head = random_head()
    condition, noises = normals(7, 2, CONDITION), normals(7, STEPS, CHANNELS, seed=2)
    together = head.mean(condition, noises, 2.0)
    alone = [head.mean(c[None], n[None], 2.0) for c, n in zip(condition, noises, strict=True)]
    torch.testing.assert_close(together, torch.cat(alone))
    assert head.steps[-1].sigma > 0


def test_guidance_moves_from_the_unconditional_to_the_conditional_velocity():
    """Scale 1 is the conditional row alone, 0 the unconditional one, others differ. Catches exchanged rows."""
    head = random_head()
    condition, noises = normals(4, 2, CONDITION), normals(4, STEPS, CHANNELS, seed=2)
    for row, scale in ((0, 1.0), (1, 0.0)):
        alone = head.mean(condition[:, row : row + 1], noises, 7.0)  # one row: the scale has no effect
        torch.testing.assert_close(head.mean(condition, noises, scale), alone)
    scaled = [head.mean(condition, noises, scale) for scale in (1.0, 2.0)]
    assert not torch.allclose(*scaled, atol=1e-3)


def test_the_loss_is_that_of_the_velocity_and_depends_on_its_generator_alone():
    """A head that predicts 0 has the velocity's own variance, 1 for tokens of unit variance."""
    head = DiffusionHead(CONDITION, CHANNELS, width=16, num_blocks=1)
    tokens, condition = normals(4096, CHANNELS).float(), normals(4096, CONDITION, seed=2).float()
    losses = [head.loss(condition, tokens, torch.Generator().manual_seed(3), draws=2) for _ in range(2)]
    assert losses[0].item() == pytest.approx(1, abs=0.05)
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=0)


@pytest.mark.full
def test_training_teaches_the_mean_and_spread_that_the_condition_names():
    """Tokens N(+-1.5, 0.4^2) by the sign of the condition, which must reach the blocks."""
    torch.manual_seed(0)
    head = DiffusionHead(1, 1, width=32, num_blocks=2)
    optimizer, generator = torch.optim.Adam(head.parameters(), lr=3e-3), torch.Generator().manual_seed(0)
    for _ in range(400):
        sign = torch.randint(2, (256, 1), generator=generator) * 2.0 - 1
        tokens = 1.5 * sign + 0.4 * torch.randn(256, 1, generator=generator)
        optimizer.zero_grad()
        head.loss(sign, tokens, generator).backward()
        optimizer.step()
    signs = torch.tensor([-1.0, 1.0]).repeat_interleave(500)[:, None, None]
    with torch.no_grad():
        mean = head.mean(signs, torch.randn(1000, len(head.steps), 1, generator=generator), 1.0)
    tokens = (mean + head.steps[-1].sigma * torch.randn(1000, 1, generator=generator)).view(2, 500)
    torch.testing.assert_close(tokens.mean(1), torch.tensor([-1.5, 1.5]), atol=0.15, rtol=0)
    torch.testing.assert_close(tokens.std(1), torch.tensor([0.4, 0.4]), atol=0.12, rtol=0)
