"""Jacobi windows whose verification tosses coins: what is decoded follows the target's law, counted over many images
and by enumeration."""

from functools import partial

import pytest
import torch
from torch import Tensor

from lantern import sampling
from lantern.acceptance.exact import Exact
from lantern.drafters.jacobi.jacobi import Jacobi, redraw, redraw_coupled
from lantern.drafters.jacobi.proactive import ProactiveJacobi
from lantern.drafters.jacobi.starts import Left, Nearest, Uniform
from lantern.laws.enumeration import LoopNoise, Scripts, every_outcome, law_of_images
from lantern.laws.tables import TableTarget, many_images, p_value, sequence_law
from lantern.noise import Noise, Purpose
from lantern.sampling import Sampling
from lantern.verification.block import Block
from lantern.verification.ratio import Ratio, RatioProposals

STARTS = {"nearest": Nearest(), "uniform": Uniform(), "left": Left()}


def p_of_window(drafter_of, sampling: Sampling) -> float:
    target = TableTarget(vocab_size=3, num_tokens=5, cfg_scale=sampling.cfg_scale)
    images = many_images(target, drafter_of(target), Ratio(), sampling)
    return p_value(images, sequence_law(target, sampling))


@pytest.mark.parametrize("start", STARTS)
def test_many_images_of_a_window_with_runners_up_under_ratio_follow_the_target_law(start):
    """Catches runners-up that are not drawn without the guess, and such as q lacks."""
    sampling = Sampling(top_k=2)
    made = partial(ProactiveJacobi, length=3, levels=2, width=3, start=STARTS[start], redraw=redraw_coupled)
    assert p_of_window(partial(made, sampling=sampling), sampling) > 1e-6


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("redraw", [redraw_coupled, redraw])
def test_many_images_of_a_window_under_ratio_follow_the_target_law(redraw, start):
    """Catches a guess that is no draw from the law it is judged by: a biased coupling, a copied token whose law is not
    certain, a coin used twice."""
    made = partial(Jacobi, length=3, start=STARTS[start], redraw=redraw, sampling=Sampling())
    assert p_of_window(made, Sampling()) > 1e-6


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


# Every draw of every round enumerated. Laws are of two codes and of few shapes, so that a coupling's coin, a number in
# [0, 1), needs few values.
LAWS = torch.tensor([[1, 3], [3, 1], [1, 1]], dtype=torch.float64)
CUTS = torch.tensor([0, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 4, 1], dtype=torch.float64)  # p / q of any two, or of a sure q
UNGUIDED = Sampling(cfg_scale=1.0)


def peaked_target(num_tokens: int) -> TableTarget:
    target, generator = TableTarget(2, num_tokens, UNGUIDED.cfg_scale), torch.Generator().manual_seed(3)
    target.table[:] = LAWS[torch.randint(len(LAWS), target.table.shape[:2], generator=generator)].log()
    return target


class WindowNoise(LoopNoise):
    """The part of Noise that a window under ratio verification uses."""

    def uniform(self, purpose: Purpose, position: Tensor, steps: Tensor) -> Tensor:
        """A number from each interval of CUTS. In the first round no guess is known: nothing is tossed for."""
        widths, middles = CUTS.diff().expand(len(position), -1), (CUTS[1:] + CUTS[:-1]) / 2
        asked = position[:, 0] > 0
        return torch.stack([middles[self.scripts.choose(widths, asked)] for _ in steps], dim=1)


class EnumeratedDraws(RatioProposals):
    def redraw(self, laws: Tensor) -> Tensor:
        every = torch.ones(len(laws), dtype=torch.bool)
        return torch.stack([self._noise.scripts.choose(law, every) for law in laws.unbind(1)], dim=1)


def law_by_noise(monkeypatch, make_drafter, num_tokens: int) -> tuple[Tensor, Tensor]:
    """[2] * L: of what is decoded, and the target's."""
    target = peaked_target(num_tokens)
    verification = Ratio()
    verification.proposals = EnumeratedDraws

    def run(scripts: Scripts) -> list[tuple[int, ...]]:
        monkeypatch.setattr(sampling, "Noise", lambda *sizes: WindowNoise(scripts))
        count = len(scripts)
        made = many_images(target, make_drafter(target), verification, UNGUIDED, count=count)
        return [tuple(tokens) for tokens in made.tolist()]

    law = torch.zeros([2] * num_tokens, dtype=torch.float64)
    for tokens, weight in every_outcome(run):
        law[tokens] += weight
    return law, sequence_law(target, UNGUIDED)


LENGTHS = [(redraw_coupled, "nearest", 3), (redraw_coupled, "uniform", 4), (redraw_coupled, "left", 3)]
LENGTHS += [(redraw, start, 4) for start in STARTS]


@pytest.mark.parametrize(("redraw", "start", "num_tokens"), LENGTHS)
def test_a_window_under_ratio_decodes_the_targets_law_exactly(monkeypatch, redraw, start, num_tokens):
    """Catches a guess that is no draw from the law it is judged by, however small the bias."""
    made = partial(Jacobi, length=2, start=STARTS[start], redraw=redraw, sampling=UNGUIDED)
    law, wanted = law_by_noise(monkeypatch, made, num_tokens)
    torch.testing.assert_close(law, wanted, rtol=0, atol=1e-12)


WARM = Sampling(temperature=0.7, top_k=2)
HOT = Sampling(temperature=1.5, cfg_scale=1.0)


WINDOWS = [(redraw, start, WARM) for redraw in (redraw_coupled, redraw) for start in STARTS]


@pytest.mark.parametrize(("redraw", "start", "sampling"), [*WINDOWS, (redraw_coupled, "nearest", HOT)])
@pytest.mark.parametrize("verification", [Ratio(), Block()], ids=["ratio", "block"])
def test_a_window_decodes_the_targets_law_at_any_temperature(verification, redraw, start, sampling):
    """Catches laws of a window without the temperature or the cut of the laws that judge it."""
    target = TableTarget(vocab_size=3, num_tokens=4, cfg_scale=sampling.cfg_scale)
    drafter = Jacobi(target, 2, STARTS[start], redraw, sampling)
    law = law_of_images(target, drafter, verification, Exact(), sampling)
    torch.testing.assert_close(law, sequence_law(target, sampling), rtol=0, atol=1e-12)


def test_a_window_starts_from_the_law_of_the_sampling():
    """Catches first guesses without temperature: lossless, and seldom right."""
    target = TableTarget(vocab_size=3, num_tokens=4, cfg_scale=2.0)
    drafter = Jacobi(target, 2, Nearest(), redraw, WARM)
    target.allocate(1, 3)
    drafter.allocate(1)
    prefill = target.prefill(["x"], torch.arange(1))
    drafter.begin(prefill, torch.arange(1))
    drafter.draft(torch.tensor([0]), torch.tensor([3]), EnumeratedDraws(WindowNoise(Scripts([{}]))))
    torch.testing.assert_close(drafter.laws, WARM.law(prefill.logits).expand(-1, 2, -1))


@pytest.mark.full
def test_a_coupling_to_another_law_is_caught(monkeypatch):
    """The test above can fail: guesses were drawn from a law that the coupling takes for another one."""

    def softened(proposals, laws, former, known):
        return proposals.redraw_coupled(laws, former.tokens, (former.laws + laws) / 2, known)

    made = partial(Jacobi, length=2, start=Nearest(), redraw=softened, sampling=UNGUIDED)
    law, wanted = law_by_noise(monkeypatch, made, 4)
    assert (law - wanted).abs().max() > 1e-4
