"""Shared noise, the Gumbel coupling of SCD (2510.24211) for any tree: the token at a position is argmax(log p + G), one
table G an image, so that the tokens are plain decoding's with that G, whatever was drafted. Greedy decoding: G = 0."""

import torch
from torch import Tensor

from lantern.acceptance.relaxed import Relaxation
from lantern.errors import LanternError
from lantern.noise import Noise
from lantern.types import DraftTree, Verdict

PICK_SPREAD = 0.5  # how far log p scatters about log q, in units in which the target's pick is a softmax of log q + G


class SharedProposals:
    """Children are the codes the target would pick under the same noise if q were its law."""

    keeps_law = False

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def drawn(self, log_q: Tensor, nodes: Tensor, depth: int) -> Tensor:
        """log_q [B, W, V] of nodes at this depth -> log q + G of the position behind them."""
        return log_q + self._noise.picks(depth)[:, None]

    def chosen(self, log_q: Tensor, depth: int) -> Tensor:
        """-> log of the estimated probability that the target picks each code."""
        return (self.drawn(log_q, None, depth) / PICK_SPREAD).log_softmax(-1)

    def coupled(self, laws: Tensor, former: Tensor, former_laws: Tensor, known: Tensor) -> Tensor:
        """laws [B, W, V] of the positions behind the root -> the picks under them [B, W]; equal laws, equal picks."""
        depths = torch.arange(laws.shape[1], device=laws.device).expand(len(laws), -1)
        return (laws.log() + self._noise.picks_at(depths)).argmax(-1)


class SharedNoise:
    name = "shared_noise"
    proposals = SharedProposals

    def __call__(self, tree: DraftTree, probs: Tensor, rule: Relaxation, noise: Noise) -> Verdict:
        """probs p [B, N, V]. Follows the deepest path on which every child is the pick at its parent; among equally
        deep ones the one of earlier nodes."""
        batch, size = tree.tokens.shape
        gumbel = noise.picks_at(tree.depths).expand_as(probs)  # [B, N, V]
        pick = (probs.log() + gumbel).argmax(-1)  # [B, N]
        parents = tree.parents.clamp(min=0)
        if rule.lossless:
            agrees = pick.gather(1, parents) == tree.tokens
        elif not hasattr(rule, "relax"):
            raise LanternError(
                f"verification=shared_noise needs a law to pick from, acceptance={rule.name} names none; use "
                "verification=ratio"
            )
        else:
            agrees = _relaxed_agreement(tree, probs, gumbel, rule)
        agrees = agrees & ~tree.is_padding
        agrees[:, 0] = True  # the root is committed
        reached = ~(tree.ancestors & ~agrees[:, None]).any(-1)  # [B, N]
        best = (tree.depths.masked_fill(~reached, -1)).argmax(1)  # the first among the deepest
        rows = torch.arange(batch, device=probs.device)
        on_path = tree.ancestors[rows, best]
        order = torch.arange(size, device=probs.device).masked_fill(~on_path, size).sort(1).values
        return Verdict(order.masked_fill(order == size, -1), tree.depths[rows, best], pick[rows, best])


def _relaxed_agreement(tree: DraftTree, probs: Tensor, gumbel: Tensor, rule: Relaxation) -> Tensor:
    """[B, N] whether child x is the pick under the p~ its own judging gives: argmax(log p~ + G) = x."""
    parents = tree.parents.clamp(min=0)[..., None].expand_as(probs)
    law = probs.gather(1, parents).flatten(0, 1)
    p_tilde = rule.relax(law, tree.tokens.flatten()).view_as(probs)
    return (p_tilde.log() + gumbel.gather(1, parents)).argmax(-1) == tree.tokens
