"""The EAGLE drafter's cached, level-by-level passes against one causal pass over all its pairs. Verification hides a
drafter's mistakes from the output, so nothing else would notice them than a lower speed."""

import pytest
import torch
from support.toy import PROMPTS, SEEDS, decode, tiny_eagle, tiny_target
from support.uneven_rounds import target_features, uneven_rounds
from torch import Tensor

from lantern.drafters.eagle.eagle import Eagle
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.types import DraftTree

TREES = {
    "chain": chain(4),
    "static": StaticTree([[0], [1], [2], [0, 0], [0, 1], [1, 0], [2, 0], [0, 0, 0], [0, 1, 0], [2, 0, 0]]),
    "eagle2": Eagle2Tree(total=14, depth=4, width=3),
}
CASES = [(tree, sampling) for sampling in (Sampling(), Sampling(cfg_scale=1.0)) for tree in TREES]
CASES += [("chain", Sampling(temperature=0.7, top_k=9))]


class Witnessed:
    """A tree policy that records q of every path it had expanded, row by row."""

    def __init__(self, tree) -> None:
        self.tree = tree
        self.num_nodes, self.num_expanded, self.depth = tree.num_nodes, tree.num_expanded, tree.depth
        self.name, self.width = tree.name, tree.width

    def grow(self, roots: Tensor, tokens_left: Tensor, expand, proposals) -> DraftTree:
        self.seen = [[] for _ in roots]

        def watched(tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
            log_q = expand(tokens, parents, depth)
            q = log_q.softmax(-1)
            lines = parents.expand(len(tokens), -1).tolist()
            for row, seen in enumerate(self.seen):
                known = [path for path, _ in seen]
                for slot, (token, parent) in enumerate(zip(tokens[row].tolist(), lines[row], strict=True)):
                    seen.append(((*known[parent], token) if depth else (token,), q[row, slot]))
            return log_q

        return self.tree.grow(roots, tokens_left, watched, proposals)


def slow_law(drafter: Eagle, sampling: Sampling, prompt: str, committed: list[int], drafted: tuple[int, ...]) -> Tensor:
    """q behind the committed tokens and the drafted ones, the root among the committed: pair i is feature i with
    token i + 1, text rows carry code 0, and behind the root each feature is the drafter's own last output."""
    target = drafter.target
    reads = drafter.network.reads
    features = reads(target_features(target, prompt, committed[:-1], reads.layers))
    tokens = [0] * (target.prefix_len - 1) + committed
    for token in (*drafted, None):
        embeddings = target.embed(torch.tensor([tokens] * target.guidance))
        rotation = target.rotation[None, 1 : len(tokens) + 1]
        outputs = drafter.network(embeddings, features, rotation, None)[:, -1:]
        features = torch.cat([features, outputs], dim=1)
        tokens = [*tokens, token]
    return sampling.law(target.head(target.guide(outputs[None])))[0, 0]


@pytest.mark.parametrize(
    ("layers", "num_layers", "input_norms"), [((), 1, False), ((1, 0), 1, False), ((), 3, False), ((1, 0), 1, True)]
)
@pytest.mark.parametrize(("tree", "sampling"), CASES, ids=str)
@torch.inference_mode()
def test_draft_laws_equal_one_causal_pass_over_all_pairs(tree, sampling, layers, num_layers, input_norms):
    """Catches lost pairs of accepted tokens, wrong positions, attention to siblings, features of other parents; layers
    in another order, outputs in their place, drafter outputs that are mapped again as layers are, inputs without their
    norms, and scores without temperature or top_k."""
    target = tiny_target(sampling.cfg_scale)
    policy = Witnessed(TREES[tree])
    drafter = tiny_eagle(target, policy, sampling, layers, num_layers, input_norms)
    for prompts, committed, forwards in uneven_rounds(target, drafter, 5):
        tokens_left = target.num_tokens - min(map(len, committed))
        assert forwards == min(policy.depth, tokens_left - 1)  # a level each
        for row, seen in enumerate(policy.seen):
            for path, law in seen:
                if len(committed[row]) + len(path) <= target.num_tokens:
                    slow = slow_law(drafter, sampling, prompts[row], committed[row], path[1:])
                    torch.testing.assert_close(law, slow, rtol=0, atol=1e-10)


def test_layers_are_mapped_along_the_accepted_path_alone():
    """Catches a map over all nodes of a tree of which a path is kept."""
    tree = StaticTree([[0], [1], [2], [0, 0], [0, 1], [1, 0]])
    target, rows = tiny_target(), []
    drafter = tiny_eagle(target, tree, Sampling(), layers=[0, 1])
    drafter.network.reads.fc.register_forward_hook(lambda _, given, made: rows.append(made.shape[2]))
    decode(target, drafter, Sampling(), 2, prompts=PROMPTS[:2])
    assert max(rows[1:]) <= tree.depth + 1 < tree.num_nodes


def test_behind_a_prefix_of_one_position_a_row_starts_anew_with_its_next_image():
    """As in models of classes. Catches pairs of a row's former image that are still attended to."""
    target, sampling = tiny_target(prefix_len=1), Sampling()
    parts, prompts = (target, tiny_eagle(target, chain(4), sampling), sampling, 1), ["a", "b", "c"]
    alone = [decode(*parts, prompts=[prompt], seeds=[seed]) for prompt, seed in zip(prompts, SEEDS, strict=False)]
    together = decode(*parts, prompts=prompts)
    assert together.steps.tolist() == [int(one.steps) for one in alone]
    assert torch.equal(together.tokens, torch.cat([one.tokens for one in alone]))
