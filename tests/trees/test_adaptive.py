"""Adaptive trees: each row's depth and width against a history in plain Python."""

import torch
from support.toy import ByLikelihood
from support.trees import PathLaws, brute_force_beam, paths_of

from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.static import chain
from lantern.types import StatefulTreePolicy, Verdict

GRID, TOTAL, DEPTH, WIDTH, START = (3, 4), 12, 5, 6, 2
LENGTH = GRID[0] * GRID[1]


class SlowImage:
    """One image: the position of its root, and the depth recommended at each committed position."""

    def __init__(self) -> None:
        self.root, self.depths = 0, {0: START}

    def shape(self) -> tuple[int, int]:
        left, above = self.depths[self.root], self.depths.get(self.root + 1 - GRID[1])
        wanted = left if above is None else -(-(left + above) // 2)
        self.depth = min(wanted, LENGTH - self.root - 2)
        return self.depth, min(WIDTH, -(-TOTAL // max(1, self.depth)))

    def observe(self, accepted: int) -> None:
        goal = DEPTH if accepted == self.depth else accepted + 1
        for position in range(self.root + 1, self.root + accepted + 2):
            self.depths[position] = min(DEPTH, -(-(self.depth + goal) // 2))
        self.root += accepted + 1

    @property
    def tokens_left(self) -> int:
        return LENGTH - self.root - 1


def test_depth_and_width_follow_from_the_rounds_left_and_above():
    """Catches the history of another row, another position, or the row's previous image; shrinks the batch, too. Left
    of the first column is the last position of the grid row above: rounds follow raster order."""
    tree, laws = AdaptiveTree(TOTAL, DEPTH, WIDTH, START), PathLaws(codes=13, seed=9)
    images = [SlowImage() for _ in range(4)]
    generator, shapes = torch.Generator().manual_seed(1), set()
    tree.allocate(4, GRID, torch.device("cpu"))
    for round_number in range(6):
        if round_number == 3:
            tree.begin(torch.tensor([2]))
            images[2] = SlowImage()
        if round_number == 5:
            tree.keep(torch.tensor([2, 0]))
            images = [images[2], images[0]]
        tokens_left = torch.tensor([image.tokens_left for image in images])
        roots = torch.arange(len(images)) + round_number
        grown, accepted = tree.grow(roots, tokens_left, laws, ByLikelihood()), []
        for row, image in enumerate(images):
            depth, width = image.shape()
            shapes.add((depth, width))
            assert set(paths_of(grown, row)) == brute_force_beam(laws, int(roots[row]), TOTAL, depth, width)
            accepted.append(int(torch.randint(depth + 1, (), generator=generator)))
            image.observe(accepted[-1])
        path = torch.full((len(images), DEPTH + 1), -1)
        tree.observe(Verdict(path, torch.tensor(accepted), torch.zeros(len(images), dtype=torch.long)))
        for image in images:
            if image.tokens_left < 2:  # finished: a new image takes its row
                row = images.index(image)
                tree.begin(torch.tensor([row]))
                images[row] = SlowImage()
    assert len(shapes) > 3  # it does adapt


def test_only_an_adaptive_tree_is_a_stateful_policy():
    """Catches a protocol that other policies satisfy by accident."""
    assert isinstance(AdaptiveTree(4, 2, 2, 1), StatefulTreePolicy)
    assert not isinstance(chain(2), StatefulTreePolicy)
