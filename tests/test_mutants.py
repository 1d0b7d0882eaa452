"""The tests can fail: each classic mistake of speculative decoding, made on purpose, must move the enumerated (or, for
shared randomness, the counted) law away from the target's; and each edit of MUTANTS must fail its test."""

import subprocess
import sys

import pytest
import torch
from support import tables
from support.mutants import MUTANTS, Mutant, NoSubtraction, tried_at_once
from support.paths import ROOT
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.engine.judging import Judge
from lantern.laws.tables import TableDrafter, TableTarget, many_images, p_value, sequence_law
from lantern.noise import Noise, Purpose
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.types import PADDING, DraftTree
from lantern.verification import ratio
from lantern.verification.ratio import Ratio

SAMPLING = Sampling()
SIBLINGS = StaticTree([[0], [1]])


def deviation(tree, rule=None, alter=lambda tree: tree, num_tokens: int = 3) -> float:
    """How far one enumerated round is from the target's law, at the worst sequence."""
    target = TableTarget(vocab_size=3, num_tokens=num_tokens, cfg_scale=2.0)
    drafter = TableDrafter(target, tree, SAMPLING)
    return tables.deviation(target, drafter, Ratio(), rule or Exact(), SAMPLING, alter=alter)


@pytest.mark.parametrize("tree", [SIBLINGS, chain(2), Eagle2Tree(4, 2, 2)], ids=["siblings", "chain", "eagle2"])
def test_a_residual_that_is_p_itself_is_caught(tree):
    """And without it there is no deviation: catches a check that would call anything a mutant."""
    assert deviation(tree, NoSubtraction()) > 1e-3
    assert deviation(tree) < 1e-9


@pytest.mark.parametrize(
    "wrong", [lambda q, x: q.scatter(1, x[:, None], 0), lambda q, x: q], ids=["unnormalised", "with the rejected token"]
)
def test_a_wrong_q_after_a_rejection_is_caught(wrong, monkeypatch):
    monkeypatch.setattr(ratio, "without", wrong)
    assert deviation(SIBLINGS) > 1e-3


def test_siblings_sorted_by_q_after_they_were_drawn_are_caught():
    def sort(tree: DraftTree) -> DraftTree:
        siblings = tree.tokens[:, 1:]
        order = tree.draft_probs[:, 0].gather(1, siblings).argsort(1, descending=True)
        return DraftTree(torch.cat([tree.tokens[:, :1], siblings.gather(1, order)], 1), tree.parents, tree.draft_probs)

    assert deviation(SIBLINGS, alter=sort) > 1e-3


def test_a_rank_gap_is_caught():
    def drop_first(tree: DraftTree) -> DraftTree:
        parents = tree.parents.clone()
        parents[:, 1] = PADDING
        return DraftTree(tree.tokens, parents, tree.draft_probs)

    assert deviation(SIBLINGS, alter=drop_first) > 1e-3


def test_a_bonus_token_from_the_wrong_node_is_caught(monkeypatch):
    class FromTheParent(ratio._Walk):
        def descend(self, accepted, child):
            before = self.p
            super().descend(accepted, child)
            is_leaf = accepted & (self.first_child[self.rows, child] < 0)
            self.p = torch.where(is_leaf[:, None], before, self.p)

    monkeypatch.setattr(ratio, "_Walk", FromTheParent)
    monkeypatch.setattr(ratio, "judge_chain", ratio.judge_reached_nodes)
    assert deviation(chain(1)) > 1e-3
    assert deviation(SIBLINGS) > 1e-3


WARM = Sampling(temperature=0.7)


def of_images(tree) -> float:
    """How far the enumerated law of whole images at another temperature is from the target's."""
    target = TableTarget(vocab_size=3, num_tokens=3, cfg_scale=2.0)
    return tables.deviation_of_images(target, TableDrafter(target, tree, WARM), Ratio(), WARM)


@pytest.mark.parametrize("tree", [chain(1), SIBLINGS, Eagle2Tree(4, 2, 2)], ids=["chain", "siblings", "eagle2"])
def test_a_round_judged_without_temperature_is_caught(tree, monkeypatch):
    """Its first token is drawn rightly."""
    assert of_images(tree) < 1e-9

    def forgetful(judge, tree, forward):
        probs = forward.logits.softmax(-1)
        return probs, judge.verification(tree, probs, judge.rule, judge.noise)

    monkeypatch.setattr(Judge, "__call__", forgetful)
    assert of_images(tree) > 1e-3


class CoinOfTheChild(Noise):
    """Tosses the coin of a child with the very noise that drew it."""

    def accepts(self, probability: Tensor, node: Tensor) -> Tensor:
        gumbel = self.gumbel(Purpose.CHILDREN, self.position, node.clamp(min=1) - 1)  # of a chain: of its parent
        return (-(-gumbel).exp()).exp().amax(-1) < probability


@pytest.mark.full
def test_a_coin_shared_with_drafting_is_caught(monkeypatch):
    target = TableTarget(vocab_size=3, num_tokens=3, cfg_scale=2.0)
    monkeypatch.setattr("lantern.sampling.Noise", CoinOfTheChild)
    images = many_images(target, TableDrafter(target, chain(1), SAMPLING), Ratio(), SAMPLING)
    assert p_value(images, sequence_law(target, SAMPLING)) < 1e-6


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_edits_one_place(mutant: Mutant):
    """Catches a place that has changed, and a test that was renamed."""
    file, name = mutant.test.split("::")
    assert (ROOT / mutant.file).read_text().count(mutant.text) == 1
    assert f"def {name}(" in (ROOT / "tests" / file).read_text()


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The project without its history, runs and weights, to be edited."""
    copy = tmp_path_factory.mktemp("copied")
    names = ["lantern", "tests", "docs", "conf", "hydra_plugins", "tools"]
    names += ["README.md", "CONTRIBUTING.md", "pyproject.toml"]
    subprocess.run(["cp", "-r", *(ROOT / name for name in names), copy], check=True)
    (copy / "data").symlink_to(ROOT / "data")
    return copy


@pytest.mark.full
@pytest.mark.parametrize("mutants", tried_at_once())
def test_mutants_fail_their_tests(mutants: list[Mutant], copied):
    before = {mutant: (copied / mutant.file).read_text() for mutant in mutants}
    for mutant, text in before.items():
        (copied / mutant.file).write_text(text.replace(mutant.text, mutant.wrong))
    try:
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-rf", "-p", "no:cacheprovider"]
        tests = [f"tests/{mutant.test}" for mutant in mutants]
        run = subprocess.run([*command, *tests], cwd=copied, capture_output=True, text=True)
    finally:
        for mutant, text in before.items():
            (copied / mutant.file).write_text(text)
    assert [test for test in tests if f"FAILED {test}" not in run.stdout] == [], run.stdout
