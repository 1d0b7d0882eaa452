"""The output law of a rule against enumeration at six codes, and its values on whole decodings."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.mutants import NoSubtraction
from support.tables import ROOT, law_of_one_round
from support.toy import PROMPTS, SEEDS, tiny_eagle, tiny_target

from lantern.acceptance.cool_sd import CoolSD
from lantern.acceptance.entropy_aware import EntropyAware
from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.laws.tables import TableDrafter, TableTarget
from lantern.metrics.output_tv import CodeDistance, OutputTV, plain_picks, summary, total_variation
from lantern.metrics.visits import RecordingDrafter, Visit, committed_law
from lantern.pipeline import Pipeline
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.types import DraftTree, Verdict
from lantern.verification.block import Block
from lantern.verification.ratio import Ratio, RatioProposals, judge_all_nodes
from lantern.verification.shared_noise import SharedNoise

CODES = 6
CODEBOOK = torch.randn(CODES, 2, generator=torch.Generator().manual_seed(0))
RULES = {
    "exact": Exact(), "lantern": Lantern(CODEBOOK, 3, 0.3), "lantern_pp": LanternPP(CODEBOOK, 4, 3.0),
    "cool_sd": CoolSD(0.5, 0, 0), "entropy_aware": EntropyAware(1.0, 2.0),
}  # fmt: skip
TREES = {"one": chain(1), "two": StaticTree([[0], [1]]), "three": StaticTree([[0], [1], [2]])}
TREES |= {"chosen": Eagle2Tree(total=3, depth=1, width=3)}
SIBLINGS = StaticTree([[0], [1], [0, 0]])


def enumerated(tree, rule) -> tuple[torch.Tensor, Visit]:
    """The law of the first token of a round by enumeration of all children and coins, and the position it is from."""
    sampling = Sampling()
    target = TableTarget(CODES, 3, cfg_scale=2.0)
    drafter = TableDrafter(target, tree, sampling)
    law = law_of_one_round(target, drafter, Ratio(), rule, sampling).sum(1)
    target.allocate(1, tree.num_nodes)
    drafter.allocate(1)
    target.prefill([""], torch.arange(1))
    seen = []
    law_of_one_round(target, drafter, Ratio(), rule, sampling, lambda grown: seen.append(grown) or grown)
    grown = seen[0]
    target.allocate(1, tree.num_nodes)
    p = sampling.law(target.verify(type(grown)(*[f[:1] for f in (grown.tokens, grown.parents)])).logits)[0, 0]
    assert grown.tokens[0, 0] == ROOT
    q = None if grown.draft_probs is None else grown.draft_probs[0, 0]
    return law, Visit(p, q, grown.tokens[0, grown.parents[0] == 0], 0)


def noise(redraws: int) -> torch.Tensor:
    return OutputTV(1, 1, redraws)._noise(torch.zeros(CODES))


REDRAWN = [(tree, redraws, most) for tree in ("two", "three") for redraws, most in ((64, 0.06), (16384, 0.004))]


@pytest.mark.parametrize("verification", [Ratio(), judge_all_nodes], ids=["here", "as on a GPU"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("tree", "redraws", "most"), [("one", 4, 1e-9), ("chosen", 4, 1e-9), *REDRAWN])
def test_the_law_is_the_enumerated_one_and_with_redraws_converges_to_it(tree, redraws, most, rule, verification):
    """Catches acceptances of all nodes, which a GPU judges at once, taken for those of one; a first child counted
    twice, children drawn with replacement, and a rejection weighed wrongly."""
    expected, visit = enumerated(TREES[tree], RULES[rule])
    law = committed_law(visit, RULES[rule], verification, noise(redraws))
    assert total_variation(expected, law) < most


@pytest.mark.parametrize("tree", TREES)
def test_a_biased_verifier_stands_clear_of_the_floor_and_the_exact_rule_is_at_it(tree):
    """The bias is found by walking the verification, not by a rule's name."""
    _, visit = enumerated(TREES[tree], Exact())
    measured = OutputTV(1, 1, 4096)
    exact, biased = (
        measured.of_visits([visit], rule, Ratio(), CodeDistance(CODEBOOK)) for rule in (Exact(), NoSubtraction())
    )
    assert exact["output_tv"] == biased["output_tv_floor"] < 0.01  # the same visit and redraws
    assert biased["output_tv"] > 0.03 > 3 * biased["output_tv_floor"]


def pipeline(tree, rule, verification, dtype=torch.float64, temperature=1.0) -> Pipeline:
    target, sampling = tiny_target(dtype=dtype), Sampling(temperature=temperature)
    rule = rule(target.codebook) if callable(rule) else rule
    return Pipeline(target, tiny_eagle(target, tree, sampling), verification, rule, sampling)


@pytest.mark.parametrize(
    ("tree", "estimator"),
    [(chain(3), "closed form"), (SIBLINGS, "redrawn children"), (Eagle2Tree(4, 2, 2), "closed form")],
    ids=["chain", "static", "eagle2"],
)
def test_a_whole_decoding_is_measured_at_its_visited_positions(tree, estimator):
    measured = OutputTV(num_images=2, num_positions=10, redraws=512)

    def found(rule):
        return measured.measure(pipeline(tree, rule, Ratio()), PROMPTS, SEEDS, 4)

    exact, relaxed = found(Exact()), found(lambda codebook: Lantern(codebook, 10, 0.5))
    assert exact["output_tv_estimator"] == estimator
    assert exact["output_tv_positions"] >= 10
    assert exact["output_tv"] == exact["output_tv_floor"] < 0.03
    assert relaxed["output_tv"] > 0.05 + 2 * relaxed["output_tv_floor"]
    assert exact["code_distance"] == exact["code_distance_floor"] < 0.1
    assert relaxed["code_distance"] > relaxed["output_tv"]  # what moves, moves by a nearest distance at least, nearly
    assert relaxed["output_tv_q50"] <= relaxed["output_tv_q90"] <= 1


def test_a_recording_drafter_changes_no_token_and_records_the_laws_of_the_committed_positions():
    """Catches a node taken for its child, a law of another row, and positions counted by row instead of by image."""
    plain = pipeline(SIBLINGS, Exact(), Ratio())
    watched = replace(plain, drafter=(witness := RecordingDrafter(plain.drafter, 1)))
    tokens = plain.generate(PROMPTS[:5], SEEDS[:5], 2).tokens
    assert torch.equal(watched.generate(PROMPTS[:5], SEEDS[:5], 2).tokens, tokens)
    assert Counter(visit.image for visit in witness.visits) == dict.fromkeys(range(5), 15)
    laws = torch.stack([visit.p for visit in witness.visits])
    torch.testing.assert_close(laws.sum(1), torch.ones(len(laws), dtype=laws.dtype))
    assert {len(visit.children) for visit in witness.visits} == {0, 1, 2}


def test_under_shared_noise_the_share_of_other_picks_is_measured():
    measured = OutputTV(num_images=4, num_positions=1, redraws=1)

    def found(rule):
        return measured.measure(pipeline(chain(3), rule, SharedNoise()), PROMPTS, SEEDS, 4)

    assert found(Exact())["output_tv"] == found(Exact())["code_distance"] == 0
    relaxed = found(lambda codebook: Lantern(codebook, 10, 0.5))
    assert relaxed["code_distance"] > relaxed["output_tv"] / 2 > 0
    assert relaxed["output_tv_positions"] == 4 * 16


def test_what_a_verification_is_called_does_not_say_how_it_is_measured():
    """Catches a stranger's verification measured as if it picked by the target's noise, whose coins would then count as
    tokens that differ."""
    own = {"name": "shared_noise", "head_s": 0.0, "proposals": RatioProposals}
    stranger = type("Stranger", (), {**own, "__call__": lambda _, *given: Ratio()(*given)})()
    found = OutputTV(2, 8, 16).measure(pipeline(chain(3), Exact(), stranger), PROMPTS[:2], SEEDS[:2], 2)
    assert "output_tv" not in found
    assert "least_output_tv" in found


def test_the_least_change_is_measured_where_a_round_begins_alone():
    """Catches positions behind accepted drafts: that they were reached says something of their tokens."""
    parts = pipeline(chain(3), Exact(), Block())
    found = OutputTV(4, 8, 16).measure(parts, PROMPTS[:4], SEEDS[:4], 2)
    steps = parts.generate(PROMPTS[:4], SEEDS[:4], 2).steps.sum()
    assert found["least_output_tv_positions"] <= steps < 4 * 15


@pytest.mark.parametrize(
    ("lossy", "temperature", "is_measured"), [(True, 1, False), (False, 1, True), (False, 0, False)]
)
def test_of_a_path_chosen_by_looking_ahead_no_share_is_given(lossy, temperature, is_measured):
    """Catches a number that is no bound: among several relaxed siblings the one with the longer path is taken."""
    rule = Lantern(tiny_target().codebook, 10, 0.5) if lossy else Exact()
    parts = pipeline(SIBLINGS, rule, SharedNoise(), temperature=temperature)
    assert bool(OutputTV(2, 1, 1).measure(parts, PROMPTS[:2], SEEDS[:2], 2)) == is_measured


def test_a_token_that_plain_decoding_would_not_pick_is_counted_alone():
    """Behind it the picks are those of the changed prefix."""
    plain = pipeline(chain(1), Exact(), SharedNoise()).baseline()
    tokens = plain.generate(PROMPTS[:2], SEEDS[:2], 2).tokens.clone()
    assert torch.equal(plain_picks(plain.target, plain.sampling, PROMPTS[:2], SEEDS[:2], tokens), tokens)
    tokens[0, 15] = (tokens[0, 15] + 1) % 24
    differ = plain_picks(plain.target, plain.sampling, PROMPTS[:2], SEEDS[:2], tokens) != tokens
    assert differ.nonzero().tolist() == [[0, 15]]


def test_positions_of_one_image_count_as_one_where_they_are_alike():
    """Catches bounds as if 200 positions of 8 images were independent: they would be a fifth as wide."""
    by_image = np.linspace(0.1, 0.3, 8)
    images = np.repeat(np.arange(8), 25)
    found, alone = summary("output_tv", by_image[images], images), summary("output_tv", by_image, np.arange(8))
    for key in ("output_tv", "output_tv_low", "output_tv_high"):
        assert found[key] == pytest.approx(alone[key])
    margin = 2.36 * by_image.std(ddof=1) / 8**0.5
    assert found["output_tv_high"] - found["output_tv"] == pytest.approx(margin, rel=0.1)
    assert np.isnan(summary("output_tv", by_image, np.zeros(8))["output_tv_high"])  # a single image has no bounds


@pytest.mark.parametrize("verification", [Ratio(), SharedNoise()], ids=["ratio", "shared noise"])
def test_a_lossy_rule_that_moved_nothing_has_an_upper_bound_and_an_exact_one_needs_none(verification):
    """Catches [0, 0] for a rule of which four images say only that it seldom moves anything."""
    measured, found = OutputTV(4, 40, 16), {}
    for rule in (Exact(), Lantern(tiny_target().codebook, 3, 1e-12)):
        measured_pipeline = pipeline(chain(2), rule, verification)
        found[rule.name] = measured.measure(measured_pipeline, PROMPTS[:4], SEEDS[:4], 4)
        assert found[rule.name]["output_tv"] == pytest.approx(0, abs=1e-9)
        assert found[rule.name]["output_tv_low"] == pytest.approx(0, abs=1e-9)
    assert found["exact"]["output_tv_high"] == pytest.approx(0, abs=1e-9)
    assert found["lantern"]["output_tv_high"] == pytest.approx(1 - 0.05**0.25)
    assert np.isnan(found["lantern"]["code_distance_high"])


def test_copies_of_an_image_in_a_draining_batch_are_not_visited(monkeypatch):
    """Catches positions of one image that count several times on a GPU, where batches keep their size."""
    inner = tiny_eagle(tiny_target(), chain(1), Sampling())
    recording = RecordingDrafter(inner, 1)
    for name in ("allocate", "begin", "keep", "observe"):
        monkeypatch.setattr(inner, name, lambda *parts: None)
    recording.allocate(3)
    recording.begin(None, torch.arange(3))
    recording.keep(torch.tensor([2, 1, 2, 2]))
    tree = DraftTree(torch.zeros(4, 2, dtype=torch.long), torch.tensor([[-1, 0]]).expand(4, -1))
    verdict = Verdict(torch.tensor([[0, 1]] * 4), torch.ones(4, dtype=torch.long), torch.zeros(4, dtype=torch.long))
    recording.observe(tree, None, torch.rand(4, 2, 5), verdict)
    assert [visit.image for visit in recording.visits] == [2, 2, 1, 1]
