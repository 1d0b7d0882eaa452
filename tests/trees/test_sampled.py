"""The sampled tree: its shape against one grown node by node in plain Python, and what the shape may depend on."""

import pytest
import torch
from support.trees import PathLaws, paths_of
from torch import Tensor

from lantern.trees.sampled import FALL, FIRST, LATER, PEAK, SampledTree
from lantern.types import PADDING

ROOTS = torch.arange(5)


class GumbelDraws:
    """Proposals: Gumbel noise keyed by seed and node; stateless."""

    needs_draft_law = True

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def sample_scores(self, log_q: Tensor, nodes: Tensor, depth: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        table = -torch.rand(64, log_q.shape[-1], generator=generator, dtype=log_q.dtype).log().neg().log()
        return log_q + table[nodes.expand(len(log_q), -1)]


def slow_shape(tree: SampledTree, laws: PathLaws, drawn: dict, root: int, tokens_left: int) -> set[tuple[int, ...]]:
    """The paths whose acceptance probability reaches tree.price, from drawn: {path: [children in order]}."""
    level, found = [((root,), 1.0)], [(root,)]
    for _ in range(min(tree.depth, tokens_left - 1)):
        offers = []
        for path, reach in level:
            law, left = laws.law(path), reach
            for rank in range(min(tree.width, int((law > 0).sum()))):
                token = drawn[path][rank] if rank < len(drawn.get(path, ())) else None
                later = (LATER + PEAK * float(law.max())) * FALL ** (rank - 1)
                chance = FIRST if rank == 0 else min(FIRST, later)
                offers.append((left * chance, path, token))
                left *= 1 - chance
        offers = sorted((offer for offer in offers if offer[0] >= tree.price), key=lambda offer: -offer[0])
        offers = offers[: tree.total + 1 - len(found)]
        found += [(*path, token) for _, path, token in offers]
        level = sorted((((*path, token), worth) for worth, path, token in offers), key=lambda node: -node[1])
        level = [(path, worth) for path, worth in level[: tree.beam] if worth * FIRST >= tree.price]
    return set(found)


@pytest.mark.parametrize("shape", [(30, 5, 3, 4, 0.03), (9, 4, 3, 2, 0.01), (40, 8, 5, 3, 0.05), (3, 1, 4, 1, 0.01)])
@pytest.mark.parametrize("zeros", [0.0, 0.7])
def test_a_sampled_tree_holds_every_node_whose_acceptance_probability_reaches_the_threshold(shape, zeros):
    """Catches probabilities of the wrong path, mixed-up rows or siblings, gaps in ranks, an ignored limit or
    threshold."""
    tree, laws = SampledTree(*shape), PathLaws(codes=11, seed=4, zeros=zeros)
    tokens_left = torch.tensor([99, 99, 99, 3, 1])
    grown = tree.grow(ROOTS, tokens_left, laws, GumbelDraws(0))
    for row, root in enumerate(ROOTS.tolist()):
        paths = paths_of(grown, row)
        drawn: dict[tuple[int, ...], list[int]] = {}
        for path in paths[1:]:
            drawn.setdefault(path[:-1], []).append(path[-1])
        assert set(paths) == slow_shape(tree, laws, drawn, root, int(tokens_left[row]))
        assert len(paths) == len(set(paths))
    assert (grown.parents < torch.arange(grown.parents.shape[1])).all()
    assert grown.tokens.shape[1] == 1 + max(int((grown.parents[row] >= 0).sum()) for row in range(5))


def test_children_are_the_first_draws_of_their_own_node_whose_law_is_stored():
    """Catches children that are no draws from the q that verification will judge them by."""
    laws, noise = PathLaws(codes=11, seed=5), GumbelDraws(1)
    grown = SampledTree(30, 5, 3, 4, 0.03).grow(ROOTS, torch.full((5,), 99), laws, noise)
    for row in range(5):
        paths = dict(enumerate(paths_of(grown, row)))
        for node, path in paths.items():
            children = [int(grown.tokens[row, child]) for child in paths if grown.parents[row, child] == node]
            if children:
                law = laws.law(path)
                scores = noise.sample_scores(law.log()[None, None], torch.tensor([node]), 0)[0, 0]
                assert children == scores.argsort(descending=True)[: len(children)].tolist()
                torch.testing.assert_close(grown.draft_probs[row, node], law)


def test_a_row_grows_the_same_tree_alone_and_beside_others():
    """Catches node indices, and so noise, or a node budget shared between rows."""
    laws = PathLaws(codes=11, seed=6)
    tree, tokens_left = SampledTree(20, 6, 3, 4, 0.03), torch.tensor([99, 99, 4, 99, 2])
    together = tree.grow(ROOTS, tokens_left, laws, GumbelDraws(2))
    sizes = set()
    for row in range(5):
        alone = tree.grow(ROOTS[row : row + 1], tokens_left[row : row + 1], laws, GumbelDraws(2))
        size = alone.tokens.shape[1]
        sizes.add(size)
        assert torch.equal(together.tokens[row, :size], alone.tokens[0])
        assert torch.equal(together.parents[row, :size], alone.parents[0])
        assert (together.parents[row, size:] == PADDING).all()
    assert len(sizes) > 2  # the shape does follow from the laws
