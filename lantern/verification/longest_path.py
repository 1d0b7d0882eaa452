"""PathSpec's verification (2606.10492, after its code): judges each path of a tree as if there were no others, and
commits the longest accepted one. Biased: drafts get a chance per path. verification=ratio judges a tree exactly."""

import torch
from torch import Tensor

from lantern.noise import Noise
from lantern.types import AcceptanceRule, DraftTree, Site, Verdict
from lantern.verification.block import BlockProposals
from lantern.verification.ratio import order_of_children
from lantern.verification.shared_noise import deepest


class LongestPath:
    """Commits the first of equally long paths, then a token from the law left at its end: the rule's residual, or p."""

    name, lossless = "longest_path", False
    head_s, proposals = 0.0, BlockProposals

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
        """probs p [B, N, V]. A node is judged against its parent's full q: earlier siblings are not removed from it."""
        rows, size = torch.arange(len(probs), device=probs.device), probs.shape[1]
        if size == 1:
            return Verdict(torch.zeros_like(tree.parents), torch.zeros_like(rows), noise.draw(probs[:, 0]))
        nodes, above = torch.arange(len(probs) * size, device=probs.device), tree.parents.clamp(min=0)
        p = probs[rows[:, None], above].flatten(0, 1)
        q = None if tree.draft_probs is None else tree.draft_probs[rows[:, None], above].flatten(0, 1)
        site = Site(tree.depths.flatten(), torch.zeros_like(nodes), p, nodes)
        chance, residual = rule.judge(p, q, tree.tokens.flatten(), site)  # the root's are not used
        chance, residual = chance.view(len(rows), size), residual.view_as(probs)
        accepted = ~tree.is_padding
        for child in range(1, size):  # behind their parents
            is_reached = accepted[:, child] & accepted[rows, above[:, child]]
            accepted[:, child] = is_reached & noise.accepts(chance[:, child], torch.where(is_reached, child, 0))
        last = deepest(tree, ~accepted[:, 1:])[:, 0]
        rejected = order_of_children(tree)[0][rows, last]
        law = torch.where(rejected[:, None] < 0, probs[rows, last], residual[rows, rejected])
        return Verdict(tree.path_to(last), tree.depths[rows, last], noise.draw(law))
