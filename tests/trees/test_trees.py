"""Draft trees: the published ones, invalid ones, EAGLE-2 against a beam by brute force, relations against loops."""

import json

import pytest
import torch
import yaml
from support.paths import ROOT
from support.toy import ByLikelihood
from support.trees import PathLaws, brute_force_beam, paths_of

from lantern.errors import LanternError
from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.types import PADDING, DraftTree, TreeTopology

PAPER_FIGURES = json.loads((ROOT / "tests" / "golden" / "static_trees.json").read_text())
SIZES = {"mc_sim_7b_63": 25, "naive_extend_57": 57, "chain": 5}


@pytest.mark.parametrize("name", SIZES)
def test_a_published_tree_is_the_one_in_the_configs(name):
    """Catches a path lost or misread on the way from the papers' code to conf/tree."""
    file = "static" if name == "mc_sim_7b_63" else name
    config = yaml.safe_load((ROOT / "conf" / "tree" / f"{file}.yaml").read_text())
    paths = config.get("paths") or [[0] * depth for depth in range(1, config["length"] + 1)]
    assert sorted(map(tuple, paths)) == sorted(map(tuple, PAPER_FIGURES[name]))
    tree = StaticTree(PAPER_FIGURES[name])
    assert len(tree.paths) == tree.num_nodes - 1 == SIZES[name]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([[0, 0]], r"\[0, 0\].*without its prefix \[0\]"),
        ([[0], [2]], r"\[2\].*without its earlier sibling \[1\]"),
        ([[0], [0, 1]], r"\[0, 1\].*without its earlier sibling \[0, 0\]"),
        ([[0], [0]], "distinct"),
        ([], "is no list"),
        ([[]], "non-empty"),
        ([[0], [-1]], r"\[-1\].*no list of ranks"),
        ([[0], [0.5]], r"\[0.5\].*no list of ranks"),
        ([["0"]], "no list of ranks"),
        (3, "is no list"),
        ("01", "no list of ranks"),
    ],
)
def test_a_list_of_paths_that_is_no_tree_is_one_clear_error(paths, message):
    """Catches gaps, which bias ratio verification, and paths that would crash in the middle of decoding."""
    with pytest.raises(LanternError, match=message):
        StaticTree(paths)


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [
        *((Eagle2Tree, sizes) for sizes in [(0, 1, 1), (3, 0, 2), (3, 2, 0), (2, 3, 4), (7, 2, 2), (100, 5, 2)]),
        *((AdaptiveTree, sizes) for sizes in [(0, 1, 1, 1), (4, 0, 2, 0), (4, 2, 0, 1), (4, 2, 2, 0), (4, 2, 2, 3)]),
        *((DDDTree, sizes) for sizes in [(0, 1, 1, -1.0, []), (5, 2, 1, -1.0, []), (4, 3, 4, -1.0, [3])]),
        (chain, (0,)),
    ],
)
def test_sizes_that_leave_no_tree_are_one_clear_error(policy, sizes):
    """Catches a tree with fewer nodes than asked for, a check that is never reached, and a tree that draws nothing."""
    with pytest.raises(LanternError, match=r"tree\.\w+="):
        policy(*sizes)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("needs_draft_law", [False, True])
def test_a_static_tree_takes_the_best_ranks_of_every_node(name, needs_draft_law):
    """Catches ranks, parents or laws that are mixed up between nodes of a level."""
    tree, laws = StaticTree(PAPER_FIGURES[name]), PathLaws(codes=12, seed=0)
    grown = tree.grow(torch.tensor([3, 4]), torch.tensor([99, 99]), laws, ByLikelihood(needs_draft_law))
    for row, root in enumerate((3, 4)):
        tokens = {(): (root,)}
        for path in tree.paths:
            order = laws.law(tokens[path[:-1]]).argsort(descending=True)
            tokens[path] = (*tokens[path[:-1]], int(order[path[-1]]))
        assert paths_of(grown, row) == list(tokens.values())
        if needs_draft_law:
            for node, path in enumerate([(), *tree.paths]):
                if (*path, 0) in tree.paths:
                    torch.testing.assert_close(grown.draft_probs[row, node], laws.law(tokens[path]))
    assert needs_draft_law or grown.draft_probs is None


def test_draws_beyond_the_support_become_padding_with_all_their_descendants():
    """Catches children that q could not have drawn, and orphans below them."""
    laws = PathLaws(codes=12, seed=1, zeros=0.8)
    tree = StaticTree(PAPER_FIGURES["naive_extend_57"])
    grown = tree.grow(torch.arange(6), torch.full((6,), 99), laws, ByLikelihood(True))
    assert grown.is_padding.any()
    for row in range(6):
        for path in paths_of(grown, row)[1:]:
            assert laws.law(path[:-1])[path[-1]] > 0
        for parent in grown.parents[row].tolist():
            assert parent < 0 or grown.parents[row, parent] != PADDING


@pytest.mark.parametrize(("total", "depth", "width"), [(4, 2, 2), (12, 4, 3), (59, 5, 10), (6, 1, 8), (5, 5, 1)])
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_eagle2_keeps_the_nodes_of_a_beam_by_brute_force(total, depth, width, zeros):
    """Catches a beam that mixes rows or levels, scores not summed along the path, nodes kept without their parents."""
    laws, roots, tokens_left = PathLaws(codes=13, seed=2, zeros=zeros), torch.arange(4), torch.tensor([99, 99, 3, 1])
    grown = Eagle2Tree(total, depth, width).grow(roots, tokens_left, laws, ByLikelihood())
    for row, root in enumerate(roots.tolist()):
        expected = brute_force_beam(laws, root, total, min(depth, int(tokens_left[row]) - 1), width)
        assert set(paths_of(grown, row)) == expected
    assert grown.draft_probs is None
    assert (grown.parents < torch.arange(grown.parents.shape[1])).all()


def test_the_first_nodes_of_an_eagle2_tree_are_the_smaller_tree():
    """Catches an order of nodes in which the size of a tree could not be read off a larger one."""
    laws, roots, tokens_left = PathLaws(codes=13, seed=3), torch.arange(3), torch.full((3,), 99)
    large, small = (Eagle2Tree(total, 4, 5).grow(roots, tokens_left, laws, ByLikelihood()) for total in (40, 9))
    assert torch.equal(large.tokens[:, :10], small.tokens)
    assert torch.equal(large.parents[:, :10], small.parents)


def test_ancestors_and_depths_are_those_of_a_loop():
    """Catches reach that stops short on long chains and padding that belongs to the tree."""
    generator = torch.Generator().manual_seed(0)
    for size in (1, 2, 5, 33, 64):
        parents = torch.stack([torch.randint(max(node, 1), (20,), generator=generator) for node in range(size)], dim=1)
        parents[:, 0] = -1
        parents[:2, 1:] = torch.arange(size - 1)  # chains
        for row, node in ((row, node) for row in range(4, 20) for node in range(1, size)):
            if torch.rand((), generator=generator) < 0.1 or parents[row, parents[row, node]] == PADDING:
                parents[row, node] = PADDING
        tree = DraftTree(torch.zeros_like(parents), parents)
        for row in range(20):
            for node in range(size):
                line = [node]
                while parents[row, line[-1]] >= 0:
                    line.append(int(parents[row, line[-1]]))
                assert tree.ancestors[row, node].nonzero().flatten().tolist() == sorted(line)
                assert tree.depths[row, node] == len(line) - 1


def test_a_topology_agrees_with_the_parents_of_its_tree():
    """Catches a topology whose depths, ancestors or paths are another tree's: masks and verdicts would follow it."""
    for parents in ((-1,), (-1, 0, 1, 2), (-1, 0, 0, 1, 1, 2, 5, 0)):
        topology = TreeTopology.of(parents, torch.device("cpu"))
        tokens = torch.zeros(3, len(parents), dtype=torch.long)
        tree, derived = topology.tree(tokens), DraftTree(tokens, torch.tensor(parents).expand(3, -1))
        assert torch.equal(tree.parents, derived.parents)
        assert torch.equal(tree.ancestors, derived.ancestors)
        assert torch.equal(tree.depths, derived.depths)
        for node, path in enumerate(topology.paths.tolist()):
            assert [n for n in path if n >= 0] == derived.ancestors[0, node].nonzero().flatten().tolist()
        assert (topology.width < 2) == (parents == tuple(range(-1, len(parents) - 1)))
