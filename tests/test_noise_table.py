"""The table of picks that noise streams hold: as a direct computation gives them, and no more than are read."""

import pytest
import torch
from support.noise_streams import CODES, WINDOW, picks, streams
from support.toy import PROMPTS, SEEDS, tiny_eagle, tiny_target

from lantern import noise as noise_module
from lantern.acceptance.exact import Exact
from lantern.decoding import DecodingSetup, generate
from lantern.noise import AHEAD, Noise, Purpose
from lantern.row_parallel import RowParallel
from lantern.sampling import Sampling
from lantern.trees.static import chain
from lantern.verification import Ratio, SharedNoise
from lantern.verification.block import Block


@pytest.mark.parametrize("few", [WINDOW, WINDOW + AHEAD // 2])  # as on a CPU, and elsewhere
def test_the_ring_holds_what_a_direct_computation_gives(few):
    """Catches ring rows overwritten too early, made for another position, or never made for an admitted row."""
    noise, generator = streams([1, 2, 3]), torch.Generator().manual_seed(0)
    noise._picks.refill_at = few
    for turn in range(60):
        depths = torch.randint(WINDOW, (3, 5), generator=generator)
        direct = noise.weights(Purpose.PICK, noise.position[:, None] + 1 + depths)
        assert torch.equal(noise.noise_at_depths(depths), direct)
        ahead = torch.arange(WINDOW).expand(len(direct), -1)
        assert torch.equal(noise.noise_of_chain(WINDOW), noise.noise_at_depths(ahead))
        assert torch.equal(picks(noise, 2), noise.weights(Purpose.PICK, noise.position + 3).log())
        torch.testing.assert_close(picks(noise, 2), noise.gumbel(Purpose.PICK, noise.position + 3))
        steps = torch.randint(WINDOW + 1, (3,), generator=generator)
        noise.advance(steps.tolist(), steps)
        if turn % 20 == 5:
            noise.admit(torch.tensor([2, 0]), torch.tensor([30, 10]))
        if turn == 8:
            noise.keep(torch.tensor([2, 0, 1]))


@pytest.mark.parametrize("method", ["ratio", "block", "rows"])
def test_picks_that_nothing_reads_are_not_made(monkeypatch, method):
    """Catches a third of a chain's noise made for verifications that toss coins, and for rows, which pick by
    themselves."""
    monkeypatch.setattr(Noise, "_make_picks", lambda *_: pytest.fail("picks are made"))
    target = tiny_target()
    drafter = RowParallel(2, 1) if method == "rows" else tiny_eagle(target, chain(3), Sampling())
    verification = {"ratio": Ratio, "block": Block, "rows": SharedNoise}[method]()
    setup = DecodingSetup(target, drafter, verification, Exact(), Sampling())
    generate(setup, PROMPTS, SEEDS, 3)


def test_an_admitted_image_alone_is_given_new_picks(monkeypatch):
    """Catches a whole window made for each of eight images where one of them starts."""
    made, exponential = [], noise_module._exponential
    monkeypatch.setattr(noise_module, "_exponential", lambda of: made.append(of.numel()) or exponential(of))
    noise = streams(list(range(8)))
    noise.noise_of_chain(WINDOW)
    window = noise.tables[0].shape[1]
    assert sum(made) == 8 * window * CODES
    noise.advance([5] * 8, torch.full((8,), 5))
    made.clear()
    noise.admit(torch.tensor([3]), torch.tensor([30]))
    found = noise.noise_of_chain(WINDOW)
    assert sum(made) == window * CODES
    ahead = noise.position[:, None] + 1 + torch.arange(WINDOW)
    assert torch.equal(found, noise.weights(Purpose.PICK, ahead))
