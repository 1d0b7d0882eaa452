"""Settings of the rules: each is checked where its rule is made."""

import pytest
import torch

from lantern.acceptance.cool_sd import CoolSD
from lantern.acceptance.entropy_aware import EntropyAware
from lantern.acceptance.gsd import GSD
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.acceptance.lantern_pp_released import LanternPPReleased
from lantern.acceptance.lantern_released import LanternReleased
from lantern.acceptance.transport import Transport
from lantern.acceptance.tv_budget import TvBudget
from lantern.acceptance.typical import Typical
from lantern.acceptance.vvs import VVS
from lantern.errors import LanternError

CODES = 6
CODEBOOK = torch.randn(CODES, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lantern(CODEBOOK, CODES, 0.1), "acceptance.k=6"),
        (lambda: LanternPP(CODEBOOK, CODES, 2.0), "acceptance.k=6"),
        (lambda: Lantern(CODEBOOK, -1, 0.1), "acceptance.k=-1"),
        (lambda: Lantern(CODEBOOK, 4, -0.1), "acceptance.delta=-0.1"),
        (lambda: Lantern(CODEBOOK, 4, 1.5), "acceptance.delta=1.5"),
        (lambda: Lantern(CODEBOOK, 4, float("nan")), "acceptance.delta=nan"),
        (lambda: LanternPP(CODEBOOK, 4, 0.99), "acceptance.lam=0.99"),
        (lambda: LanternPP(CODEBOOK, 4, float("nan")), "acceptance.lam=nan"),
        (lambda: TvBudget(-0.1), "acceptance.eps=-0.1"),
        (lambda: TvBudget(1.1), "acceptance.eps=1.1"),
        (lambda: TvBudget(float("nan")), "acceptance.eps=nan"),
        (lambda: Transport(CODEBOOK, 0, 0.1), "acceptance.k=0"),
        (lambda: Transport(CODEBOOK, CODES, 0.1), "acceptance.k=6"),
        (lambda: Transport(CODEBOOK, 2, -1), "acceptance.eps=-1"),
        (lambda: Transport(CODEBOOK, 2, float("nan")), "acceptance.eps=nan"),
        (lambda: Transport(torch.ones(5, 2), 2, 0.1), "all codes here are equal"),
        (lambda: CoolSD(0, 0.7, 0), "acceptance.delta=0"),
        (lambda: CoolSD(1.1, -0.1, 0), "acceptance.nu=-0.1"),
        (lambda: CoolSD(1.1, 0.7, float("nan")), "acceptance.mu=nan"),
        (lambda: CoolSD(1e39, 0.7, 0), r"acceptance.delta=1e\+39"),
        (lambda: CoolSD(1.1, 0.7, -81), "acceptance.mu=-81"),
        (lambda: EntropyAware(0, 1), "acceptance.alpha=0"),
        (lambda: EntropyAware(1e-46, 1), "acceptance.alpha=1e-46"),
        (lambda: EntropyAware(3, -1), "acceptance.beta=-1"),
        (lambda: EntropyAware(3, 1e39), r"acceptance.beta=1e\+39"),
        (lambda: GSD(CODEBOOK, 0, 0.1, 0.1), "acceptance.g=0"),
        (lambda: GSD(CODEBOOK, CODES + 1, 0.1, 0.1), "acceptance.g=7"),
        (lambda: GSD(CODEBOOK, 2, 0, 0.1), "acceptance.max_gap=0"),
        (lambda: GSD(CODEBOOK, 2, 0.1, float("nan")), "acceptance.max_distance=nan"),
        (lambda: Typical(0, 0.3), "acceptance.eps=0"),
        (lambda: Typical(0.1, float("nan")), "acceptance.delta=nan"),
        (lambda: LanternReleased(CODEBOOK, CODES, 0.1), "acceptance.k=6"),
        (lambda: LanternReleased(CODEBOOK, 2, 1.5), "acceptance.delta=1.5"),
        (lambda: LanternPPReleased(CODEBOOK, -1, 2.0), "acceptance.k=-1"),
        (lambda: LanternPPReleased(CODEBOOK, 2, 0.5), "acceptance.lam=0.5"),
        (lambda: VVS(-1), "acceptance.skip=-1"),
    ],
)
def test_settings_out_of_range_are_one_clear_error(make, message):
    """Catches a silent default or a crash far from the value."""
    with pytest.raises(LanternError, match=message):
        make()
