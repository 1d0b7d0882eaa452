"""Block verification of a chain (Sun et al., 2403.10444, algorithm 2): the drafted tokens are judged together, so that
a likely continuation can save an unlikely token. Lossless, and longer on average than token by token."""

import torch
from torch import Tensor

from lantern.acceptance.committed import committed_laws, point_mass
from lantern.errors import LanternError
from lantern.noise import Noise
from lantern.types import PADDING, AcceptanceRule, DraftTree, Verdict
from lantern.verification.ratio import RatioProposals


class BlockProposals(RatioProposals):
    """The accepted length depends on all tokens of a block, so rejected tokens are not samples of their law. Therefore
    a window is drawn anew, without coupling."""

    def redraw_coupled(self, laws: Tensor, former: Tensor, former_laws: Tensor, known: Tensor) -> Tensor:
        return self.redraw(laws)


class Block:
    """Takes the exact rule, and rules with a committed law r of their own; tokens then follow r exactly."""

    name = "block"
    head_s, proposals = 0.0, BlockProposals

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
        require_chain(tree, self.name)
        rows = torch.arange(len(probs), device=probs.device)
        last = (~tree.is_padding).sum(1) - 1  # [B]
        next_tokens = tree.tokens.roll(-1, 1)  # [B, N] the token behind a node; undefined at the last
        q = point_mass(next_tokens, probs) if tree.draft_probs is None else tree.draft_probs
        p = committed_laws(tree, probs, q, rule)
        weight = _weights(p, q, next_tokens)
        rest = (weight[..., None] * p - q).clamp(min=0)  # [B, N, V]
        accepted = _longest(weight, rest.sum(-1), last, noise)
        rest, law = rest[rows, accepted], p[rows, accepted]
        is_open = (accepted < last) & (rest.sum(-1) > 0)  # no mass left: rounding alone
        law = torch.where(is_open[:, None], rest, law)
        return Verdict(tree.path_to(accepted), accepted, noise.draw(law / law.sum(-1, keepdim=True)))


def _weights(p: Tensor, q: Tensor, next_tokens: Tensor) -> Tensor:
    """[B, N]: w_0 = 1, w_i = min(1, w_{i-1} p(x_i) / q(x_i)), the chance to keep the chain up to node i or further."""
    index = next_tokens[..., None]
    ratio = p.gather(2, index)[..., 0] / q.gather(2, index)[..., 0].clamp(min=torch.finfo(q.dtype).tiny)
    weights = [torch.ones_like(ratio[:, 0])]
    for step in ratio.unbind(1)[:-1]:
        weights.append((weights[-1] * step).clamp(max=1))
    return torch.stack(weights, dim=1)


def _longest(weight: Tensor, rest: Tensor, last: Tensor, noise: Noise) -> Tensor:
    """[B] the last accepted node. The chain's end is accepted with probability w, others with rest / (rest + 1 - w)."""
    below = rest + 1 - weight
    chance = torch.where(below > 0, rest / below, 1)
    accepted = torch.zeros_like(last)
    for node in range(1, weight.shape[1]):
        judged = node <= last
        here = torch.where(last == node, weight[:, node], chance[:, node])
        is_accepted = noise.accepts(here, torch.where(judged, node, 0))
        accepted = torch.where(judged & is_accepted, node, accepted)
    return accepted


def require_chain(tree: DraftTree, verification: str) -> None:
    if tree.width is not None and tree.width < 2:  # else synchronises with the device
        return
    size = tree.parents.shape[1]
    parents = torch.arange(-1, size - 1, device=tree.parents.device)
    length = (~tree.is_padding).sum(1, keepdim=True)
    if not bool((tree.parents == torch.where(parents + 1 < length, parents, PADDING)).all()):
        raise LanternError(
            f"verification={verification} judges chains, this tree branches; use tree=chain or verification=ratio"
        )
