"""Random trees over few codes, their laws and given noise, on which verifications are compared with slow twins."""

import torch
from torch import Tensor

from lantern.types import PADDING, DraftTree

CODES, NODES, ROWS = 6, 10, 48


class FixedNoise:
    """Given coins [B, N] and Gumbel values [B, depths, V]."""

    def __init__(self, coins: Tensor, gumbel: Tensor) -> None:
        self.coins, self.gumbel = coins, gumbel

    def accepts(self, probability: Tensor, node: Tensor) -> Tensor:
        return self.coins.gather(1, node.view(len(node), -1)).view_as(node) < probability

    def draw(self, law: Tensor) -> Tensor:
        return (law.log() + self.gumbel[:, 0]).argmax(-1)

    def noise_at_depths(self, depths: Tensor) -> Tensor:
        return self.gumbel[torch.arange(len(depths))[:, None], depths].exp()


def random_laws(generator: torch.Generator, *shape: int) -> Tensor:
    """Laws over few codes, many with zeros, some one-hot, some uniform: ties and edges on purpose."""
    kind = torch.randint(4, (*shape, 1), generator=generator)
    laws = torch.rand(*shape, CODES, generator=generator, dtype=torch.float64)
    zeros = torch.rand(*shape, CODES, generator=generator) < 0.5
    laws = torch.where(kind == 0, laws.masked_fill(zeros, 0) + 1e-300, laws)
    one_hot = torch.nn.functional.one_hot(torch.randint(CODES, shape, generator=generator), CODES).double()
    laws = torch.where(kind == 1, one_hot, laws)
    laws = torch.where(kind == 2, torch.ones(()), laws)
    laws = torch.where(laws < 1e-200, 0, laws)
    return torch.where(laws.sum(-1, keepdim=True) > 0, laws / laws.sum(-1, keepdim=True), 1 / CODES)


def random_case(seed: int, duplicates: bool = False) -> tuple[DraftTree, Tensor, FixedNoise]:
    """A batch of trees with padding whose siblings lie in the support of q, in any order; p equals q at some nodes."""
    generator = torch.Generator().manual_seed(seed)
    q, p = random_laws(generator, ROWS, NODES), random_laws(generator, ROWS, NODES)
    p = torch.where(torch.rand(ROWS, NODES, 1, generator=generator) < 0.2, q, p)
    tokens = torch.randint(CODES, (ROWS, NODES), generator=generator)
    parents = torch.full((ROWS, NODES), PADDING)
    parents[:, 0] = -1
    for row in range(ROWS):
        for node in range(1, NODES):
            parent = int(torch.randint(node, (), generator=generator))
            if parents[row, parent] == PADDING or torch.rand((), generator=generator) < 0.1:
                continue
            support = q[row, parent].clone()
            if not duplicates:
                support[tokens[row, parents[row] == parent]] = 0
            if support.sum() > 0:  # else the draw is beyond the support: the node stays padding
                tokens[row, node] = torch.multinomial(support, 1, generator=generator)
                parents[row, node] = parent
    coins = torch.rand(ROWS, NODES, generator=generator, dtype=torch.float64)
    uniform = torch.rand(ROWS, NODES, CODES, generator=generator, dtype=torch.float64)
    return DraftTree(tokens, parents, q), p, FixedNoise(coins, -(-uniform.log()).log())


def assert_same(verdict, row: int, path: list[int], token: int) -> None:
    found = verdict.path[row].tolist()
    assert found == path + [-1] * (len(found) - len(path))
    assert (int(verdict.accepted[row]), int(verdict.next_token[row])) == (len(path) - 1, token)


def widest(tree: DraftTree) -> int:
    parents = tree.parents.tolist()
    return max(row.count(node) for row in parents for node in range(len(row)))
