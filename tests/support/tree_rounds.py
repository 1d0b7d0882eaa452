"""Random trees verified and committed on a target, against recomputing without a cache."""

from collections.abc import Callable, Sequence

import torch
from support.toy import CODES, random_parents, random_verdict

from lantern.types import DraftTree, Forward, Target

Difference = Callable[[Forward, int, int, list[int]], float]  # of a pass, row, node, and the tokens that end there


def tree_rounds(
    target: Target, prompts: Sequence[str], num_nodes: int, rounds: int, seed: int, difference: Difference
) -> tuple[float, list[list[int]]]:
    """Commits random paths of random trees in rows that advance unevenly -> the worst difference at any node, and what
    is committed."""
    generator, worst, count = torch.Generator().manual_seed(seed), 0.0, len(prompts)
    committed: list[list[int]] = [[] for _ in prompts]
    for _ in range(rounds):
        tokens = torch.randint(CODES, (count, num_nodes), generator=generator)
        tree = DraftTree(tokens, random_parents(generator, count, num_nodes))
        forward = target.verify(tree)
        for row in range(count):
            for node in range(num_nodes - 1):
                line = committed[row] + tree.tokens[row][tree.ancestors[row, node]].tolist()
                if len(line) < target.num_tokens:
                    worst = max(worst, difference(forward, row, node, line))
        verdict = random_verdict(generator, tree)
        target.commit(verdict)
        for row, accepted in enumerate(verdict.accepted.tolist()):
            committed[row] += tree.tokens[row, verdict.path[row, : accepted + 1]].tolist()
    assert len({len(codes) for codes in committed}) > 1  # uneven
    return worst, committed
