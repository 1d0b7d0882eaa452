"""The head learns a law that depends on the condition, and computes many nodes as it computes one."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lantern.continuous.diffusion_head import DiffusionHead

CONDITION, CHANNELS, STEPS = 6, 3, 5


def made_head() -> DiffusionHead:
    """A small head whose zero-initialised layers are random, in float64."""
    torch.manual_seed(0)
    head = DiffusionHead(CONDITION, CHANNELS, width=16, num_blocks=2, num_steps=STEPS).double()
    for layer in (head.by_time[-1], head.by_condition[-1], head.token_out):
        torch.nn.init.normal_(layer.weight, std=0.3)
        torch.nn.init.normal_(layer.bias, std=0.3)
    return head.requires_grad_(False)


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class WithoutUploads(TorchDispatchMode):
    """Refuses values of the processor beside single numbers, and indices, which Python's lists become unseen."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        assert operation is not torch.ops.aten.index.Tensor
        for leaf in tree_leaves((args, kwargs)):
            assert not (isinstance(leaf, Tensor) and leaf.is_cpu and leaf.dim()), operation
        return operation(*args, **(kwargs or {}))


def test_sampling_uploads_nothing():
    """Catches indices or constants that a GPU is sent, and waits for, in every call."""
    head = made_head().to("meta")
    condition, noises = drawn(4, 2, CONDITION).to("meta"), drawn(4, STEPS, CHANNELS).to("meta")
    with WithoutUploads():
        assert head.last_step(condition, noises, 2.0).mean.shape == (4, CHANNELS)


def test_nodes_are_computed_as_one_by_one():
    """Catches rows of guidance or steps that are mixed between nodes."""
    head = made_head()
    condition, noises = drawn(7, 2, CONDITION), drawn(7, STEPS, CHANNELS, seed=2)
    together = head.last_step(condition, noises, 2.0)
    alone = [head.last_step(c[None], n[None], 2.0).mean for c, n in zip(condition, noises, strict=True)]
    torch.testing.assert_close(together.mean, torch.cat(alone))
    assert together.sigma > 0


def test_guidance_moves_from_the_unconditional_to_the_conditional_velocity():
    """Scale 1 is the conditional row alone, 0 the unconditional one, others differ. Catches exchanged rows."""
    head = made_head()
    condition, noises = drawn(4, 2, CONDITION), drawn(4, STEPS, CHANNELS, seed=2)
    for row, scale in ((0, 1.0), (1, 0.0)):
        alone = head.last_step(condition[:, row : row + 1], noises, 7.0).mean  # one row: the scale has no effect
        torch.testing.assert_close(head.last_step(condition, noises, scale).mean, alone)
    scaled = [head.last_step(condition, noises, scale).mean for scale in (1.0, 2.0)]
    assert not torch.allclose(*scaled, atol=1e-3)


@pytest.mark.parametrize("shape", [(4, STEPS + 1, CHANNELS), (4, STEPS, CHANNELS + 1)])
def test_noises_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match="noises"):
        made_head().last_step(drawn(4, 2, CONDITION), drawn(*shape), 1.0)


def test_the_loss_is_that_of_the_velocity_and_depends_on_its_generator_alone():
    """A head that predicts 0 has the velocity's own variance, 1 for tokens of unit variance. Catches a target of
    another scale and draws from the global generator."""
    head = DiffusionHead(CONDITION, CHANNELS, width=16, num_blocks=1)
    tokens, condition = drawn(4096, CHANNELS).float(), drawn(4096, CONDITION, seed=2).float()
    losses = [head.loss(condition, tokens, torch.Generator().manual_seed(3), draws=2) for _ in range(2)]
    assert losses[0].item() == pytest.approx(1, abs=0.05)
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=0)


def test_training_teaches_the_mean_and_spread_that_the_condition_names():
    """Tokens N(+-1.5, 0.4^2) by the sign of the condition. Catches a condition or timestep that does not reach the
    blocks, and training whose steps are not those of sampling."""
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
        last = head.last_step(signs, torch.randn(1000, len(head.steps), 1, generator=generator), 1.0)
    tokens = (last.mean + last.sigma * torch.randn(1000, 1, generator=generator)).view(2, 500)
    torch.testing.assert_close(tokens.mean(1), torch.tensor([-1.5, 1.5]), atol=0.15, rtol=0)
    torch.testing.assert_close(tokens.std(1), torch.tensor([0.4, 0.4]), atol=0.12, rtol=0)
