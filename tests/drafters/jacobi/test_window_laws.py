"""Jacobi windows whose verification tosses coins: what is decoded follows the target's law, counted over many
images."""

from functools import partial

import pytest
import torch
from support.tables import TableTarget, many_images, p_value, sequence_law

from lantern.drafters.jacobi.jacobi import Jacobi, redraw, redraw_coupled
from lantern.drafters.jacobi.proactive import ProactiveJacobi
from lantern.drafters.jacobi.starts import Left, Nearest, Uniform
from lantern.noise import Noise
from lantern.sampling import Sampling
from lantern.verification.block import Block
from lantern.verification.ratio import Ratio, RatioProposals

STARTS = {"nearest": Nearest(), "uniform": Uniform(), "left": Left()}


SAMPLINGS = [
    pytest.param(Sampling(), id="plain"),
    pytest.param(Sampling(top_k=2, cfg_scale=1.0), id="top_k", marks=pytest.mark.full),
]


def p_of_window(drafter_of, sampling: Sampling) -> float:
    target = TableTarget(vocab_size=3, num_tokens=5, cfg_scale=sampling.cfg_scale)
    images = many_images(target, drafter_of(target), Ratio(), sampling)
    return p_value(images, sequence_law(target, sampling))


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_many_images_of_a_window_with_runners_up_under_ratio_follow_the_target_law(sampling, start):
    """Catches runners-up that are not drawn without the guess, and such as q lacks."""
    made = partial(ProactiveJacobi, length=3, levels=2, width=3, start=STARTS[start], redraw=redraw_coupled)
    assert p_of_window(partial(made, sampling=sampling), sampling) > 1e-6


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("redraw", [redraw_coupled, redraw])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_many_images_of_a_window_under_ratio_follow_the_target_law(sampling, redraw, start):
    """Catches a guess that is no draw from the law it is judged by: a biased coupling, a copied token whose law is not
    certain, a coin used twice."""
    made = partial(Jacobi, length=3, start=STARTS[start], redraw=redraw, sampling=sampling)
    assert p_of_window(made, sampling) > 1e-6


def images_judged_as_blocks(redraw, proposals) -> float:
    """p of the tokens of a target whose law is (1/2, 1/2) for the first token and (1/4, 3/4) for the others."""
    target = TableTarget(vocab_size=2, num_tokens=4, cfg_scale=1.0)
    target.table[:] = torch.tensor([0.25, 0.75], dtype=torch.float64).log()
    target.table[:, 0] = 0
    verification, sampling = Block(), Sampling(cfg_scale=1.0)
    verification.proposals = proposals
    drafter = Jacobi(target, 2, Nearest(), redraw, sampling)
    return p_value(many_images(target, drafter, verification, sampling, count=20_000), sequence_law(target, sampling))


@pytest.mark.full
def test_many_images_of_a_window_judged_as_a_block_follow_the_target_law():
    """Catches guesses behind a block's end that are kept as draws from their law: the block has looked at them."""
    assert images_judged_as_blocks(redraw_coupled, Block.proposals) > 1e-6
    assert images_judged_as_blocks(redraw, Block.proposals) > 1e-6
    assert images_judged_as_blocks(redraw_coupled, RatioProposals) < 1e-6


def test_a_coupled_draw_follows_the_new_law_and_stays_as_often_as_it_can():
    """Catches a coin used twice, and a coupling that keeps less than one minus the total variation."""
    count, p, q = 60_000, torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.5, 0.3, 0.2])  # 0.3 apart
    noise = Noise(count, 3, 0)
    noise.admit(torch.arange(count), torch.arange(count))
    former = torch.multinomial(q, count, True, generator=torch.Generator().manual_seed(0))[:, None]
    laws, old = (law.expand(count, 1, 3) for law in (p, q))
    drawn = RatioProposals(noise).redraw_coupled(laws, former, old, torch.ones(count, dtype=torch.long))
    assert p_value(drawn, p.double()) > 1e-6
    assert (drawn == former).double().mean().item() == pytest.approx(0.7, abs=0.012)


@pytest.mark.full
def test_a_wrong_coupling_is_caught_by_counting():
    """The test above can fail: keeping every former draw is no draw from the new law."""

    def kept(proposals, laws, former, known):
        offsets = torch.arange(laws.shape[1])
        return torch.where(offsets < known[:, None], former.tokens, proposals.redraw(laws))

    made = partial(Jacobi, length=3, start=Nearest(), redraw=kept, sampling=Sampling())
    assert p_of_window(made, Sampling()) < 1e-6
