"""Dynamic depth: the level at which a row's tree ends, against a beam in plain Python; the calibration of tau."""

from math import exp, inf, log
from types import SimpleNamespace

import pytest
import torch
from support.toy import PROMPTS, ByLikelihood, tiny_eagle, tiny_target
from support.trees import PathLaws, brute_force_beam, paths_of

from lantern.acceptance.exact import Exact
from lantern.evaluation.rows import read_rows
from lantern.experiments.ddd_threshold import QUANTILES, TauCalibration, Trace, simulate_tau
from lantern.pipeline import Pipeline
from lantern.sampling import Sampling
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.verification import SharedNoise

ROOTS = torch.arange(6)


def slow_end(laws: PathLaws, root: int, tree: DDDTree, tokens_left: int) -> int:
    """Levels grown by a beam until the log of its total probability falls below tau."""
    beam, most = [(0.0, (root,))], min(tree.depth, tokens_left - 1)
    for level in range(1, most + 1):
        grown = []
        for score, path in beam:
            law = laws.law(path)
            best = sorted(range(laws.codes), key=lambda code: -float(law[code]))[: tree.width]
            grown += [(score + log(law[code]), (*path, code)) for code in best if law[code] > 0]
        beam = sorted(grown, reverse=True)[: tree.width]
        if level in tree.checks and log(sum(exp(score) for score, _ in beam)) < tree.tau:
            return level
    return most


@pytest.mark.parametrize("checks", [[1, 2, 3, 4], [2, 4], []])
@pytest.mark.parametrize("tau", [-0.3, -0.8, -1.5])
def test_a_tree_ends_at_the_first_check_that_it_fails(checks, tau):
    """Catches confidence of the wrong level or of another row, and rows that go on because others do."""
    tree, laws = DDDTree(18, 5, 4, tau, checks), PathLaws(codes=13, seed=7)
    tokens_left = torch.tensor([99] * 4 + [3, 1])
    grown = tree.grow(ROOTS, tokens_left, laws, ByLikelihood())
    for row, root in enumerate(ROOTS.tolist()):
        end = slow_end(laws, root, tree, int(tokens_left[row]))
        assert set(paths_of(grown, row)) == brute_force_beam(laws, root, 18, end, 4)


def test_trees_end_at_different_levels_and_no_needless_drafter_forward_runs():
    """Catches a tau without effect, and drafter forwards after the last row has ended."""
    tree, laws = DDDTree(18, 5, 4, -0.8, [1, 2, 3, 4]), PathLaws(codes=13, seed=7)
    ends, ran = [slow_end(laws, root, tree, 99) for root in ROOTS.tolist()], []

    def watched(tokens, parents, depth):
        ran.append(depth)
        return laws(tokens, parents, depth)

    tree.grow(ROOTS, torch.full((6,), 99), watched, ByLikelihood())
    assert len(set(ends)) > 1
    assert max(ends) < 5
    assert len(ran) == max(ends)


def test_without_a_threshold_it_is_eagle2():
    """Catches a beam that differs from EAGLE-2's in anything but its end."""
    laws, tokens_left = PathLaws(codes=13, seed=8), torch.tensor([99, 99, 4, 99, 2, 99])
    ours = DDDTree(20, 4, 5, -inf, [1, 2, 3]).grow(ROOTS, tokens_left, laws, ByLikelihood())
    theirs = Eagle2Tree(20, 4, 5).grow(ROOTS, tokens_left, laws, ByLikelihood())
    assert torch.equal(ours.tokens, theirs.tokens)
    assert torch.equal(ours.parents, theirs.parents)


def test_a_calibration_counts_what_trees_that_end_at_tau_commit_and_cost():
    """By hand: at tau = -1 the first round ends at level 2 and loses one token, the second goes on to level 4."""
    traces = [Trace({2: -1.5, 3: -3.0}, accepted=3), Trace({2: -0.5, 3: -0.9}, accepted=4)]
    row = simulate_tau(traces, tau=-1.0, depth=4, level_ms=2.0, fixed_ms=10.0)
    assert row["tokens_per_step"] == pytest.approx((3 + 5) / 2)
    assert row["depth"] == pytest.approx(3)
    assert row["round_ms"] == pytest.approx(16)
    assert simulate_tau(traces, -9.0, 4, 2.0, 10.0)["tokens_per_step"] == pytest.approx(4.5)
    assert simulate_tau(traces, 0.0, 4, 2.0, 10.0)["depth"] == pytest.approx(2)


def test_a_calibration_decodes_and_writes_one_row_per_tau(tmp_path, capsys):
    """Catches a calibration on other trees than were decoded: trees that never stop early commit what was measured."""
    target, measured = tiny_target(), []

    def pipeline(tree):
        joined = Pipeline(target, tiny_eagle(target, tree, Sampling()), SharedNoise(), Exact(), Sampling())
        return SimpleNamespace(generate=lambda *call: measured.append(joined.generate(*call)) or measured[-1])

    rows = TauCalibration(DDDTree(12, 4, 4, -1.0, [1, 2, 3]), 2).run(pipeline, PROMPTS[:2], 0, tmp_path)
    assert read_rows(tmp_path / "calibration.jsonl") == rows
    assert len(rows) == QUANTILES + 1
    assert rows[0]["tokens_per_step"] == pytest.approx(measured[0].tokens_per_step)
    assert rows[0]["depth"] == 4 > rows[-1]["depth"]
    best = max(rows, key=lambda row: row["tokens_per_ms"])
    assert f"tree.tau={best['tau']:.3g}" in capsys.readouterr().out
