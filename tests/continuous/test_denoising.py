"""The schedule against its formulas written out, and exact laws of sampling where the network is exact."""

from math import cos, pi, sqrt

import pytest
import torch
from torch import Tensor

from lantern.continuous.diffusion_head import Step, cosine_schedule, last_mean, sampling_steps

TRAINING_STEPS, SAMPLING_STEPS = 100, 25
SCHEDULE = cosine_schedule(TRAINING_STEPS)


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


@pytest.mark.parametrize("num_steps", [1, 7, 25, 100])
def test_steps_fall_from_the_noisiest_to_a_last_one_that_still_adds_noise(num_steps):
    """Catches a step left out at either end, and the lower variance, which is 0 at the last step."""
    steps = sampling_steps(SCHEDULE, num_steps)
    timesteps = [step.timestep for step in steps]
    assert len(steps) == num_steps
    assert timesteps[0] == TRAINING_STEPS - 1
    assert timesteps == sorted(set(timesteps), reverse=True)
    last = steps[-1]
    assert (last.clean_weight, last.noisy_weight) == pytest.approx((1, 0))
    assert last.sigma == pytest.approx(last.noise)
    assert last.sigma > 0


@pytest.mark.parametrize("num_steps", [0, 101])
def test_a_number_of_steps_that_training_did_not_have_is_refused(num_steps):
    with pytest.raises(ValueError, match=f"num_steps={num_steps} "):
        sampling_steps(SCHEDULE, num_steps)


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


def test_exact_velocities_of_a_correlated_gaussian_nearly_reproduce_it():
    """The error is that of 25 steps and falls with more. Catches steps that treat channels apart."""
    mean = torch.tensor([0.7, -1.2], dtype=torch.float64)
    covariance = torch.tensor([[0.5, 0.2], [0.2, 0.3]], dtype=torch.float64)
    errors = []
    for num_steps in (SAMPLING_STEPS, TRAINING_STEPS):
        centre, found = exact_law(sampling_steps(SCHEDULE, num_steps), mean, covariance)
        torch.testing.assert_close(centre, mean, atol=0.02, rtol=0)
        errors.append((found - covariance).abs().max().item())
    assert errors[1] < errors[0] / 2
    assert errors[0] < 0.05
