"""The relaxed rules keep their published bounds, and the law they give at a node is the closed form."""

import pytest
import torch
from support.configs import composed
from support.slow_walks import absorb as slow_absorb
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.acceptance.neighbours import nearest, number_of_neighbours
from lantern.errors import LanternError

CODES, ROWS = 12, 64
CODEBOOK = torch.randn(CODES, 3, generator=torch.Generator().manual_seed(0))
LANTERNS = [Lantern(CODEBOOK, k, delta) for k in (1, 4, 11) for delta in (0.0, 0.05, 0.4, 1.0)]
LANTERN_PPS = [LanternPP(CODEBOOK, k, lam) for k in (1, 4, 11) for lam in (1.0, 1.5, 3.0, 50.0)]


def laws(seed: int) -> Tensor:
    """[B, V] peaked laws with zeros."""
    logits = 2 * torch.randn(ROWS, CODES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return logits.masked_fill(logits < -2.5, -torch.inf).softmax(-1)


def tokens() -> Tensor:
    return torch.arange(ROWS) % CODES


def name(rule) -> str:
    return f"{rule.name}-{rule.k}-{getattr(rule, 'delta', getattr(rule, 'lam', None))}"


@pytest.mark.parametrize("rule", LANTERNS + LANTERN_PPS, ids=name)
def test_relaxation_conserves_mass_and_takes_the_longest_prefix_within_the_budget(rule):
    """Catches mass that is lost or made, neighbours taken beyond the first that does not fit, a wrong order, and a
    budget other than the papers' (2410.03355: p~(x) - p(x) <= delta, 2502.06352: p~(x) <= lam p(x))."""
    p, x = laws(1), tokens()
    p_tilde = rule.relax(p, x)
    torch.testing.assert_close(p_tilde.sum(-1), torch.ones(ROWS, dtype=torch.float64), rtol=0, atol=1e-12)
    assert (p_tilde >= 0).all()
    for row in range(ROWS):
        budget = rule.delta if isinstance(rule, Lantern) else (rule.lam - 1) * float(p[row, x[row]])
        slow = slow_absorb(p[row].tolist(), int(x[row]), rule.neighbours[x[row]].tolist(), budget)
        torch.testing.assert_close(p_tilde[row], torch.tensor(slow, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", [Lantern(CODEBOOK, 0, 0.5), LanternPP(CODEBOOK, 0, 5.0)], ids=name)
def test_no_neighbours_means_the_exact_rule(rule):
    """Catches a rule that counts the code itself among its neighbours."""
    p, q, x = laws(4), laws(5), tokens()
    for law in (q, None):
        for relaxed, exact in zip(rule.judge(p, law, x, None), Exact().judge(p, law, x, None), strict=True):
            assert torch.equal(relaxed, exact)
    assert rule.lossless


@pytest.mark.parametrize("values", [2, 3, 50])
@pytest.mark.parametrize("chunk", [7, 1024])
def test_neighbours_are_those_of_brute_force_with_ties_to_the_lower_index(chunk, values):
    """Catches the code itself among its neighbours, an unstable order, duplicates of a code, chunks that miscount, ties
    cut off where they are many."""
    generator = torch.Generator().manual_seed(8)
    codebook = torch.randint(values, (200, 2), generator=generator).float()  # duplicates and equal distances
    found = nearest(codebook, 9, chunk)
    for code, row in enumerate(found.tolist()):
        distances = ((codebook - codebook[code]) ** 2).sum(1).tolist()
        others = sorted((distance, other) for other, distance in enumerate(distances) if other != code)
        assert row == [other for _, other in others[:9]]
    assert nearest(codebook, 0).shape == (200, 0)
    assert nearest(codebook, 199).sort(1).values.tolist() == [[o for o in range(200) if o != c] for c in range(200)]


@pytest.mark.parametrize(
    ("preset", "given", "found"), [("lantern", 16_384, 1000), ("lantern", 4096, 250), ("lantern_pp_released", 8192, 10)]
)
def test_a_presets_share_of_the_codebook_is_the_papers_number_of_neighbours(preset, given, found):
    """Catches the neighbours of a quarter of all codes where the paper has a sixteenth."""
    share = composed("evaluate", f"+method={preset}").acceptance.k
    assert number_of_neighbours(torch.empty(given, 0), share) == found


def test_a_share_is_counted_once_and_a_number_stays():
    rule = Lantern(torch.randn(64, 2), k=0.25, delta=0.1)
    assert (rule.parameters["k"], rule.neighbours.shape[1]) == (16, 16)
    assert Lantern(torch.randn(64, 2), k=1, delta=0.1).parameters["k"] == 1
    with pytest.raises(LanternError, match=r"k=1\.5"):
        Lantern(torch.randn(64, 2), k=1.5, delta=0.1)
