"""Rules that read their round (CASCADE's siblings, PathRelax) and synthetic rates: laws by enumeration, slow twins."""

import pytest
import torch
from support.small_laws import found
from support.toy import PROMPTS, SEEDS, tiny_eagle, tiny_target

from lantern.acceptance.cascade import Cascade
from lantern.acceptance.path_relax import PathRelax
from lantern.acceptance.synthetic import Synthetic
from lantern.errors import LanternError
from lantern.metrics.output_tv import OutputTV
from lantern.pipeline import Pipeline
from lantern.sampling import Sampling
from lantern.trees.static import StaticTree, chain
from lantern.types import PADDING, DraftTree, Site
from lantern.verification import Ratio, SharedNoise
from lantern.verification.ratio import judge_all_nodes, judge_reached_nodes

SIZES = ((4, 3),)
TREE = StaticTree([[0], [1], [2], [0, 0], [0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("exact", "relaxed"), [(Cascade(1.1), Cascade(0.5)), (PathRelax(0), PathRelax(1.0))], ids=["cascade", "path_relax"]
)
def test_a_rule_of_a_round_is_exact_at_its_limit_and_changes_the_law_elsewhere(exact, relaxed):
    """Catches a rule that relaxes nothing, and one that does not read the nodes it judges."""
    assert exact.lossless
    assert not relaxed.lossless
    assert found(SIZES, rule=exact, verification=Ratio(), tree=StaticTree([[0], [1], [0, 0]])) < 1e-9
    assert found(SIZES, rule=relaxed, verification=Ratio(), tree=StaticTree([[0], [1], [0, 0]])) > 0.01


def random_round(rows: int = 5, codes: int = 8):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(codes, (rows, 7), generator=generator)
    parents = torch.tensor([-1, 0, 0, 0, 1, 1, 2]).repeat(rows, 1)
    parents[1, 5] = PADDING
    features = torch.randn(rows, 2, 7, 3, generator=generator)
    p, q = (torch.rand(rows, 7, codes, generator=generator, dtype=torch.float64) for _ in range(2))
    return DraftTree(tokens, parents, q / q.sum(-1, keepdim=True)), features, p / p.sum(-1, keepdim=True)


def test_a_node_is_lent_the_mass_of_agreeing_siblings_or_of_its_level():
    """Catches cousins taken for siblings, padding that lends, a node that lends to itself, states of another row, and a
    residual of CASCADE that still has what was lent, or one of PathRelax that lacks it."""
    tree, features, p = random_round()
    flat, depths = features.transpose(1, 2).flatten(2), tree.depths
    for row in range(5):
        for node in range(1, 7):
            above, x = int(tree.parents[row, node]), tree.tokens[row, node]
            if above < 0:
                continue
            law, q = p[row, above], tree.draft_probs[row, above]
            site = Site(depths[row, node, None], depths[row, :1], law[None], torch.tensor([7 * row + node]))
            others = [other for other in range(1, 7) if other != node and tree.parents[row, other] >= 0]
            siblings = [other for other in others if tree.parents[row, other] == above]
            near = [o for o in siblings if torch.cosine_similarity(flat[row, o], flat[row, node], dim=0) >= 0.1]
            level = [other for other in others if depths[row, other] == depths[row, node]]
            lent = sum(float(law[tree.tokens[row, other]]) for other in near)
            mean = sum(float(law[tree.tokens[row, other]]) for other in level) / max(1, len(level))
            for rule, borrowed in ((Cascade(0.1), lent), (PathRelax(0.7), 0.7 * mean)):
                if rule.name == "cascade" and any(tree.tokens[row, other] == x for other in near):
                    continue  # equal siblings do not occur: they are drawn without replacement
                accept, residual = rule.of_round(tree, features).judge(law[None], q[None], x[None], site)
                assert float(accept) == pytest.approx(min(1, (float(law[x]) + borrowed) / float(q[x])), abs=1e-6)
                moved = law.clone()
                for other in near if rule.name == "cascade" else []:
                    moved[x] += law[tree.tokens[row, other]]
                    moved[tree.tokens[row, other]] -= law[tree.tokens[row, other]]
                rest = (moved.clamp(min=0) - q).clamp(min=0)
                torch.testing.assert_close(residual[0], rest / rest.sum(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", [Cascade(0.2), PathRelax(1.0)], ids=lambda rule: rule.name)
def test_all_walks_of_ratio_name_the_same_nodes(rule):
    """Catches a node counted in another row or by its parent where all nodes are judged at once."""
    sampling, target = Sampling(), tiny_target()

    def tokens(walk):
        verification = Ratio()
        kind = type("Walk", (Ratio,), {"__call__": lambda self, *parts: walk(*parts)})
        verification = kind()
        drafter = tiny_eagle(target, TREE, sampling)
        return Pipeline(target, drafter, verification, rule, sampling).generate(PROMPTS[:3], SEEDS[:3], 3).tokens

    assert torch.equal(tokens(judge_reached_nodes), tokens(judge_all_nodes))


def test_a_chain_lends_nothing_and_shared_noise_refuses_rules_of_a_round():
    """Catches a token that lends to its own descendants, and a relaxation that is silently ignored."""
    assert found(SIZES, rule=Cascade(-0.9), verification=Ratio(), tree=chain(2)) < 1e-9
    assert found(SIZES, rule=PathRelax(5.0), verification=Ratio(), tree=chain(2)) < 1e-9
    with pytest.raises(LanternError, match="use verification=ratio"):
        found(SIZES, rule=Cascade(0.5), verification=SharedNoise(), tree=chain(2))
    law, depth = torch.full((1, 4), 0.25), torch.ones(1, dtype=torch.long)
    with pytest.raises(LanternError, match="acceptance=cascade judges the nodes of a round"):
        Cascade(0.5).judge(law, law, depth, Site(depth, depth, law))


def test_synthetic_rates_give_the_tokens_per_step_that_they_state():
    """Catches a rate of another depth, and siblings that share one coin; the row is never lossless."""
    sampling, target = Sampling(), tiny_target()

    def per_step(tree, rates):
        pipeline = Pipeline(target, tiny_eagle(target, tree, sampling), Ratio(), Synthetic(rates), sampling)
        assert not pipeline.lossless
        assert "acceptance.rates=" in pipeline.guarantee.reason
        rounds = pipeline.first_rounds(PROMPTS[:1] * 2000, range(2000), 1)
        return 1 + sum(rounds[0].accepted) / 2000

    assert per_step(chain(3), [0.8, 0.5]) == pytest.approx(1 + 0.8 + 0.8 * 0.5 + 0.8 * 0.5 * 0.5, abs=0.08)
    assert per_step(StaticTree([[0], [1]]), [0.4]) == pytest.approx(1 + 1 - 0.6**2, abs=0.04)
    assert per_step(chain(2), [0.0]) == 1
    assert found(SIZES, rule=Synthetic([0.7]), verification=Ratio(), tree=chain(2)) > 0.01


def test_a_bias_shows_in_the_tokens_and_exactness_does_not():
    """Catches a lower bound of the output TV that an exact method fails, or a biased one passes."""
    sampling, target = Sampling(), tiny_target()
    measured = OutputTV(num_images=48, num_positions=1, redraws=1)

    def least(rule):
        drafter = tiny_eagle(target, StaticTree([[0], [1], [2]]), sampling)
        pipeline = Pipeline(target, drafter, Ratio(), rule, sampling)
        return measured.measure(pipeline, [*PROMPTS[:4]] * 12, range(48), 16)

    exact, relaxed = least(PathRelax(0)), least(PathRelax(50.0))
    assert exact["least_output_tv_low"] < 0 < exact["least_output_tv_high"]
    assert relaxed["least_output_tv_low"] > 0.02
