"""Enumeration of randomness by replay: every draw is a branch, a run replays a list of branches and takes the first one
beyond it, and each alternative it meets starts another run. Runs go side by side, one a row of the batch."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor


class Scripts:
    """Row b takes the branches prefixes[b], then the first possible one each time; weights[b] is its probability."""

    def __init__(self, prefixes: Sequence[tuple[int, ...]]) -> None:
        self._prefixes = prefixes
        self._taken: list[list[int]] = [[] for _ in prefixes]
        self.weights = [1.0] * len(prefixes)
        self.untried: list[tuple[int, ...]] = []

    def choose(self, law: Tensor, asked: Tensor) -> Tensor:
        """law [B, M], asked [B] -> branch [B], 0 for a row that is not asked."""
        pairs = zip(law.tolist(), asked.tolist(), strict=True)
        return torch.tensor([self._branch(row, law) if is_asked else 0 for row, (law, is_asked) in enumerate(pairs)])

    def _branch(self, row: int, law: list[float]) -> int:
        possible = [branch for branch, weight in enumerate(law) if weight > 0]
        taken, prefix = self._taken[row], self._prefixes[row]
        branch = prefix[len(taken)] if len(taken) < len(prefix) else possible[0]
        if len(taken) >= len(prefix):
            self.untried += [(*taken, other) for other in possible[1:]]
        self.weights[row] *= law[branch] / sum(law)
        taken.append(branch)
        return branch


def every_outcome(run: Callable[[Scripts], list]) -> Iterator[tuple[object, float]]:
    """All (result, probability) of a run, which returns one result a row."""
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        scripts = Scripts(waiting)
        yield from zip(run(scripts), scripts.weights, strict=True)
        waiting = scripts.untried


class ScriptedNoise:
    """The part of lantern.noise.Noise that the ratio verification uses."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def accepts(self, probability: Tensor, node: Tensor) -> Tensor:
        """As Noise. The root, node 0, stands for rows in which nothing is judged any more; of a chain [B, M] a coin is
        tossed only behind accepted ones."""
        coins, goes_on = (
            torch.stack([1 - probability, probability], -1).view(len(node), -1, 2),
            (node > 0).view(len(node), -1),
        )
        found = torch.zeros_like(goes_on)
        for place in range(coins.shape[1]):
            asked = goes_on[:, place] & found[:, :place].all(1)
            found[:, place] = self._scripts.choose(coins[:, place], asked).bool()
        return found.view(node.shape)

    def draw(self, law: Tensor) -> Tensor:
        return self._scripts.choose(law, torch.ones(len(law), dtype=torch.bool))


class ScriptedProposals:
    """Children in every order in which they can be drawn without replacement; num_children counts them by node, or is
    the most that any node has."""

    needs_draft_law = True

    def __init__(self, scripts: Scripts, num_children: Sequence[int] | int) -> None:
        self._scripts, self._num_children = scripts, num_children

    def sample_scores(self, log_q: Tensor, nodes: Tensor, depth: int) -> Tensor:
        rows = torch.arange(len(log_q))
        scores = torch.full_like(log_q, -1e3).masked_fill(log_q == -torch.inf, -torch.inf)
        for slot in range(log_q.shape[1]):
            left, most = log_q[:, slot].softmax(-1), self._num_children
            for rank in range(most if isinstance(most, int) else most[int(nodes[slot])]):
                asked = left.sum(-1) > 0
                code = self._scripts.choose(left, asked)
                scores[rows[asked], slot, code[asked]] = -float(rank)
                left[rows[asked], code[asked]] = 0
        return scores

    def topk_scores(self, log_q: Tensor, depth: int) -> Tensor:
        return log_q.log_softmax(-1)
