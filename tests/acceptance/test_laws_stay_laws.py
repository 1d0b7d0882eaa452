"""Laws that subtract masses stay non-negative and normalised on every processor; the rounding of vector instructions
differs between them. ATEN_CPU_CAPABILITY selects them, and a process reads it once, at its start; so this file is a
program, too: test_laws_stay_laws.py <precisions> <numbers of codes>."""

import itertools
import os
import subprocess
import sys

import pytest
import torch
from support.paths import ROOT, TESTS
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

CAPABILITIES = ("default", "avx2", "avx512")


SPREADS = (0.05, 1.0, 5.0, 30.0)  # of the logits: from nearly flat to nearly one-hot
ROWS = 6


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
    return [
        Exact(), TvBudget(0.05), TvBudget(0.4), CoolSD(1.5, 0.2, 0.0), EntropyAware(2.0, 1.0), VVS(1),
        Typical(0.3, 0.09), GSD(codebook, few, 0.2, 4.0), Lantern(codebook, few, 0.2), LanternPP(codebook, few, 3.0),
        LanternReleased(codebook, few, 0.2), LanternPPReleased(codebook, few, 3.0),
    ]  # fmt: skip


def check_law(name: str, law: Tensor, like: Tensor) -> None:
    """Raises AssertionError unless law [M, V] is non-negative and sums to 1 within the rounding of its precision."""
    assert law.dtype == like.dtype, name
    assert bool((law >= 0).all()), (name, float(law.min()))
    off = float((law.double().sum(-1) - 1).abs().max())
    assert off < 64 * torch.finfo(law.dtype).eps, (name, off)


def check_rules(made: list, size: int, dtype: torch.dtype, seeds: range) -> int:
    """Checks every rule's law, relaxed law and residuals; returns how many laws were checked."""
    checked = 0
    for seed, spread, draft_spread in itertools.product(seeds, SPREADS, SPREADS):
        generator = torch.Generator().manual_seed(seed)
        p, q = (random_law(size, width, dtype, generator) for width in (spread, draft_spread))
        drawn = q.multinomial(1, generator=generator)[:, 0]
        depth = torch.ones(ROWS, dtype=torch.long)
        for rule in made:
            name = f"{rule.name} {dict(rule.parameters)}, {size} codes, {dtype}, seed {seed}"
            found = [rule.judge(p, draft, drawn, Site(depth, depth - 1, p)) for draft in (q, None)]
            laws = [residual for _, residual in found]
            laws += [rule.law(p, q, depth), rule.law(p, p, depth)] if hasattr(rule, "law") else []
            laws += [rule.relax(p, drawn)] if hasattr(rule, "relax") else []
            for accept, _ in found:
                assert bool(((accept >= 0) & (accept <= 1)).all()), name
            for law in laws:
                check_law(name, law, p)
            checked += len(laws)
    return checked


def available() -> list[str]:
    """The settings of ATEN_CPU_CAPABILITY up to this processor's own, which asking for more would fall back to."""
    best = torch.backends.cpu.get_cpu_capability().lower()
    return [*CAPABILITIES[: CAPABILITIES.index(best) + 1]] if best in CAPABILITIES else ["default"]


@pytest.mark.full
@pytest.mark.parametrize("capability", available())
def test_laws_of_every_rule_stay_laws(capability):
    """Catches a law written as a difference of masses, a budget that is overspent by rounding, a sum that drifts. Many
    codes are checked with the processor's own kernels alone, fewer codes with all."""
    dtypes, sizes = ["float32", "float64"], ["10", "1024", *(["16384"] if capability == available()[-1] else [])]
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability, "PYTHONPATH": f"{ROOT}:{TESTS}"}
    run = subprocess.run(
        [sys.executable, __file__, ",".join(dtypes), *sizes],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-600:]
    reached, checked = run.stdout.split()
    assert reached.lower() == capability
    assert int(checked) > 500 * len(dtypes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    count = 0
    dtypes = [getattr(torch, name) for name in sys.argv[1].split(",")]
    for size in map(int, sys.argv[2:]):
        made, seeds = rules(size), range(3 if size < 16384 else 1)
        count += sum(check_rules(made, size, dtype, seeds) for dtype in dtypes)
    print(torch.backends.cpu.get_cpu_capability(), count)
