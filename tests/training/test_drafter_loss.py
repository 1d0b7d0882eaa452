import pytest
import torch

from lantern.training.drafter_loss import chained_length, law_loss, overlap


def laws(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)


def test_overlap_is_the_acceptance_probability_of_speculative_sampling():
    """By enumeration: sum over drawn tokens of q(x) min(1, p(x) / q(x))."""
    p, q = laws(3, 4, seed=0), laws(3, 4, seed=1)
    brute = sum(q[:, x] * torch.clamp(p[:, x] / q[:, x], max=1) for x in range(4))
    assert overlap(p, q).tolist() == pytest.approx(brute.tolist())


def test_losses_are_lowest_when_the_laws_agree():
    p = laws(2, 5, seed=0).float()
    same, other = law_loss(p, p.log(), (1.0, 1.0)), law_loss(p, laws(2, 5, seed=1).log(), (1.0, 1.0))
    assert same[2].item() == pytest.approx(0, abs=1e-6)
    assert all(a < b for a, b in zip(same, other, strict=True))


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (0.3, 2.0)])
def test_the_closed_form_is_what_autograd_finds(weights):
    """Reference: both losses by their formulas, differentiated by autograd."""
    p, logits = laws(2, 3, 7, seed=0).float(), torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(2))
    slow, fast = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    log_q = slow.log_softmax(-1)
    cross_entropy, lk = -(p * log_q).sum(-1).mean(), -overlap(p, log_q.exp()).log().mean()
    (weights[0] * cross_entropy + weights[1] * lk).backward()
    loss, *parts = law_loss(p, fast, weights)
    loss.backward()
    assert torch.allclose(torch.stack(parts), torch.stack([cross_entropy, lk]), atol=1e-6)
    assert torch.allclose(fast.grad, slow.grad, atol=1e-6)


def test_chained_length_follows_the_diagonal():
    """Reference: a loop over chains. Catches overlaps of all depths taken at the same token."""
    alphas = torch.rand(3, 2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lengths = []
    for image in range(2):
        for root in range(4):
            product, length = 1.0, 0.0
            for d in range(3):
                product *= alphas[d, image, root + d].item()
                length += product
            lengths.append(length)
    assert chained_length(alphas).item() == pytest.approx(sum(lengths) / len(lengths))


def test_a_perfect_drafter_is_accepted_at_every_depth():
    assert chained_length(torch.ones(5, 1, 9)).item() == 5
