"""Laws that subtract masses stay non-negative and normalised. The rounding of vector instructions differs between
processors: `make test-portable` runs these tests with those of an older one."""

from itertools import product

import pytest
import torch
from torch import Tensor

from lantern.acceptance.cool_sd import CoolSD
from lantern.acceptance.entropy_aware import EntropyAware
from lantern.acceptance.exact import Exact
from lantern.acceptance.gsd import GSD
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.acceptance.lantern_pp_released import LanternPPReleased
from lantern.acceptance.lantern_released import LanternReleased
from lantern.acceptance.tv_budget import TvBudget
from lantern.acceptance.typical import Typical
from lantern.acceptance.vvs import VVS
from lantern.types import Site

SPREADS = (0.05, 1.0, 5.0, 30.0)  # of the logits: from nearly flat to nearly one-hot
ROWS = 6
MANY = 16_384


def random_law(size: int, spread: float, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """[ROWS, V]: the first row a one-hot, the second flat, the third with ties; a third of the codes has no mass."""
    logits = spread * torch.randn(ROWS, size, generator=generator, dtype=dtype)
    logits[2] = logits[2].round()
    empty = torch.rand(ROWS, size, generator=generator) < 0.3
    empty[:, int(torch.randint(size, (1,), generator=generator))] = False
    law = logits.masked_fill(empty, -torch.inf).softmax(-1)
    law[0], law[1] = 0, 1 / size
    law[0, int(torch.randint(size, (1,), generator=generator))] = 1
    return law / law.sum(-1, keepdim=True)


def rules(size: int) -> list:
    codebook = torch.randn(size, 3, generator=torch.Generator().manual_seed(0))
    few = min(8, size - 1)
    of_codes = [GSD(codebook, few, 0.2, 4.0), Lantern(codebook, few, 0.2), LanternPP(codebook, few, 3.0)]
    of_codes += [LanternReleased(codebook, few, 0.2), LanternPPReleased(codebook, few, 3.0)]
    others = [Exact(), TvBudget(0.05), TvBudget(0.4), CoolSD(1.5, 0.2, 0.0), EntropyAware(2.0, 1.0), VVS(1)]
    return [*of_codes, *others, Typical(0.3, 0.09)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [10, 1024, pytest.param(MANY, marks=pytest.mark.full)])
def test_laws_of_every_rule_stay_laws(size, dtype):
    """Catches a law written as a difference of masses, a budget that is overspent by rounding, a sum that drifts."""
    made, depth = rules(size), torch.ones(ROWS, dtype=torch.long)
    for seed, spread, draft_spread in product(range(1 if size == MANY else 3), SPREADS, SPREADS):
        generator = torch.Generator().manual_seed(seed)
        p, q = (random_law(size, width, dtype, generator) for width in (spread, draft_spread))
        drawn = q.multinomial(1, generator=generator)[:, 0]
        for rule in made:
            name = f"{rule.name} {dict(rule.parameters)}, seed {seed}"
            judged = [rule.judge(p, draft, drawn, Site(depth, depth - 1, p)) for draft in (q, None)]
            laws = [residual for _, residual in judged]
            laws += [rule.law(p, q, depth), rule.law(p, p, depth)] if hasattr(rule, "law") else []
            laws += [rule.relax(p, drawn)] if hasattr(rule, "relax") else []
            assert all(bool(((accept >= 0) & (accept <= 1)).all()) for accept, _ in judged), name
            for law in laws:
                assert law.dtype == dtype, name
                assert bool((law >= 0).all()), (name, float(law.min()))
                assert float((law.double().sum(-1) - 1).abs().max()) < 64 * torch.finfo(dtype).eps, name
