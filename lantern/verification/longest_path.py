"""PathSpec's choice (2606.10492, by its code): every path of a tree is judged by itself, as if the others were not
there, and the one with the most accepted tokens is committed. Biased: drafts have as many chances to be committed as
there are paths. The exact relative judges the same tree by ratio."""

import torch
from torch import Tensor

from lantern.noise import Noise
from lantern.types import AcceptanceRule, DraftTree, Site, Verdict
from lantern.verification.block import BlockProposals
from lantern.verification.ratio import order_of_children
from lantern.verification.shared_noise import deepest


class LongestPath:
    """Of equally long paths the first is committed, and behind it a token from what the rule leaves at its end."""

    name, lossless = "longest_path", False
    head_s, proposals = 0.0, BlockProposals

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
        """probs p [B, N, V]. A node is judged by the q of its parent, whole: its siblings' draws are not removed."""
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
