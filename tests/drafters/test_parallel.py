"""Parallel drafting: one cached forward against one causal pass over all pairs and levels. Verification hides a
drafter's mistakes from the output, so nothing else would notice them than a lower speed."""

import pytest
import torch
from support.toy import decode, plain_tokens, tiny_levels, tiny_target
from support.uneven_rounds import target_features, uneven_rounds

from lantern.drafters.parallel import Parallel
from lantern.errors import LanternError
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.sampling import Sampling
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.types import DraftTree

LEVELS = 4
TREES = {
    "chain": chain(LEVELS),
    "static": StaticTree([[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]]),
    "eagle2": Eagle2Tree(12, 3, 4),
    "ddd": DDDTree(12, 4, 3, -1.0, [1, 2, 3]),
}


class AllLevels:
    """A tree that keeps the laws of all levels, and drafts a chain of the root's token."""

    num_nodes, num_expanded, depth, width, name, kind = LEVELS + 1, LEVELS, LEVELS, 1, "laws", "static"

    def grow(self, roots, tokens_left, expand, proposals) -> DraftTree:
        here = roots[:, None]
        laws = [expand(here, torch.full_like(here, depth - 1), depth).softmax(-1) for depth in range(LEVELS)]
        self.laws = torch.cat(laws, dim=1)
        return DraftTree(here.repeat(1, LEVELS + 1), torch.arange(-1, LEVELS).repeat(len(roots), 1))


def tiny_parallel(target: LlamaGenTarget, tree, sampling: Sampling, num_layers: int = 1) -> Parallel:
    network = tiny_levels(LEVELS, 96, num_layers)
    return Parallel(network.to(target.embed_weight.dtype), target, tree, sampling, "tiny-parallel")


def slow_laws(drafter: Parallel, sampling: Sampling, prompt: str, committed: list[int]) -> torch.Tensor:
    """[levels, V] behind the committed tokens: pairs as EAGLE's, and behind the last a row a level, which reads that
    pair through the level's own entrance and the pairs above its place, stands one position further and sees all rows
    before it. Each guided output is corrected by the last token and the corrected output before it."""
    target, network = drafter.target, drafter.network
    features = target_features(target, prompt, committed[:-1])
    tokens = [0] * (target.prefix_len - 1) + committed
    pairs = torch.cat([target.embed(torch.tensor([tokens] * target.guidance)), features], dim=-1)
    levels, image = [], pairs[:, target.prefix_len - 1 :]
    for level, entrance in enumerate(network.ahead, start=1):
        above = len(committed) + level - target.grid[1]  # of the token that this level predicts
        beside = [image[:, i] if 0 <= i < len(committed) else 0 * image[:, 0] for i in (above, above + 1)]
        levels.append((entrance(pairs[:, -1]) + network.above(torch.cat(beside, -1)))[:, None])
    x = torch.cat([network.fc(pairs), *levels], dim=1)
    positions = torch.arange(1, x.shape[1] + 1).clamp(max=len(target.rotation) - 1)
    x = x + network.attention(x, target.rotation[None, positions], None)
    x = x + network.feed_forward(network.ffn_norm(x))
    for block in network.deeper:
        x = block(x, target.rotation[None, positions], None)
    guided, root = target.guide(x[None, :, -LEVELS:])[0], target.embed(torch.tensor(committed[-1]))
    for level in range(1, LEVELS):
        read = network.chain.fc(torch.cat([root, guided[level - 1], guided[level]]))
        guided[level] += read + network.chain.feed_forward(network.chain.norm(read))
    return sampling.law(target.head(guided))


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(cfg_scale=1.0), Sampling(temperature=0.7, top_k=9)],
    ids=["guided", "unguided", "cut"],
)
@pytest.mark.parametrize("num_layers", [1, 3])
@torch.inference_mode()
def test_level_laws_equal_one_causal_pass_over_all_pairs(sampling, num_layers):
    """Catches levels that attend to the gaps of uneven rows or last round's levels, wrong positions, lost pairs, a
    layer that attends to another one's keys, and scores without temperature or top_k."""
    target, policy = tiny_target(sampling.cfg_scale), AllLevels()
    drafter = tiny_parallel(target, policy, sampling, num_layers)
    for prompts, committed, forwards in uneven_rounds(target, drafter, 4):
        assert forwards == 1
        for row, tokens in enumerate(committed):
            slow = slow_laws(drafter, sampling, prompts[row], tokens)
            torch.testing.assert_close(policy.laws[row], slow, rtol=0, atol=1e-10)


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("tree", TREES)
def test_shared_noise_decodes_the_tokens_of_plain_decoding(tree, num_layers):
    """Catches a tree that needs what this drafter has not, and a draft that shows in the output."""
    target, sampling = tiny_target(), Sampling()
    found = decode(target, tiny_parallel(target, TREES[tree], sampling, num_layers), sampling, 3)
    assert torch.equal(found.tokens, plain_tokens(sampling))
    assert found.tokens_per_step > 1.3


def test_a_tree_deeper_than_the_levels_is_one_clear_error():
    """Catches an index error in the middle of decoding."""
    with pytest.raises(LanternError, match=r"has 5 levels, this drafter predicts 4;.*student\.levels=5"):
        tiny_parallel(tiny_target(), chain(5), Sampling())
