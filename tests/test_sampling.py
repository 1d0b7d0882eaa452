"""The law tokens are drawn from, against one written out code by code."""

from math import exp

import pytest
import torch
from transformers import TopPLogitsWarper

from lantern.errors import LanternError
from lantern.sampling import Sampling


def slow_law(scores: list[float], temperature: float, top_k: int, top_p: float) -> list[float]:
    weights = [exp(score / temperature) for score in scores]
    ranked = sorted(range(len(weights)), key=lambda code: -weights[code])[: top_k or None]
    total, kept, mass = sum(weights[code] for code in ranked), [], 0.0
    for code in ranked:
        kept.append(code)
        mass += weights[code] / total
        if mass >= top_p:
            break
    total = sum(weights[code] for code in kept)
    return [weights[code] / total if code in kept else 0.0 for code in range(len(weights))]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [0, 1, 3])
@pytest.mark.parametrize("top_p", [1.0, 0.8, 0.3])
def test_the_law_is_the_one_written_out(temperature, top_k, top_p):
    """Catches a temperature that multiplies, a code too many or too few, and a nucleus that ends short of its mass."""
    logits = torch.randn(20, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.tensor([slow_law(row, temperature, top_k, top_p) for row in logits.tolist()], dtype=torch.float64)
    torch.testing.assert_close(Sampling(temperature, top_k, top_p).law(logits), expected, rtol=0, atol=1e-12)


def test_of_equal_codes_at_the_edge_of_the_nucleus_those_of_transformers_stay():
    logits = torch.tensor([[2.0, 1.0, 1.0, 0.0]])
    torch.testing.assert_close(Sampling(top_p=0.7).law(logits), TopPLogitsWarper(0.7)(None, logits).softmax(-1))


def test_greedy_decoding_keeps_the_law_of_temperature_one():
    logits = torch.randn(3, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.equal(Sampling(0.0).law(logits), logits.softmax(-1))


@pytest.mark.parametrize("top_k", [True, 2.5, "5", float("nan"), None])
def test_a_top_k_that_is_no_whole_number_is_one_sentence(top_k):
    """Catches an error of torch's from the first round, and nan taken for no cut."""
    with pytest.raises(LanternError, match=r"sampling\.top_k="):
        Sampling(top_k=top_k)


def test_laws_of_half_precision_are_made_in_single():
    """Catches probabilities rounded to three digits, which sum to something else than 1."""
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(2)).bfloat16()
    law = Sampling().law(logits)
    assert law.dtype == torch.float32
    torch.testing.assert_close(law.sum(-1), torch.ones(50), rtol=0, atol=1e-6)
