"""SJD-SV's verification of a window (2609.13245, after a third party's description). It cuts the draft into runs in
which the target's probability of the drafted token never falls. In each run it judges only the end, the shortest one
that holds `share` of the run's summed probability; earlier tokens are kept. One random number u judges the whole end:
its longest part with u < Π p/q is kept. Lossy; the exact twin is drafter=sjd verification=block."""

import torch
from torch import Tensor

from lantern.acceptance.relaxed import relaxed
from lantern.errors import LanternError
from lantern.noise import Noise
from lantern.types import AcceptanceRule, DraftTree, Verdict
from lantern.verification.block import BlockProposals, require_chain


class Runs:
    """Judges chains by the exact rule."""

    name, lossless = "runs", False
    head_s, proposals = 0.0, BlockProposals

    def __init__(self, share: float) -> None:
        """share, in (0, 1]: the judged end of a run holds at least this share of its summed probability; paper: 0.8."""
        if not 0 < share <= 1:
            raise LanternError(f"verification.share={share} of a run is judged; give a value above 0, at most 1")
        self.share = share

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
        require_chain(tree, self.name)
        rows, size, q = torch.arange(len(probs), device=probs.device), probs.shape[1], tree.draft_probs
        if size == 1 or (q is None and not bool((tree.parents >= 0).any())):  # before an image's last token
            accepted = torch.zeros_like(rows)
            return Verdict(tree.path_to(accepted), accepted, noise.draw(probs[:, 0]))
        if not rule.lossless or q is None:
            raise LanternError("verification=runs is for windows and the exact rule; use drafter=sjd acceptance=exact")
        chance = self.chances(tree, probs, q)
        nodes = torch.arange(1, size, device=rows.device).masked_fill(tree.is_padding[:, 1:], 0)
        accepted = (noise.accepts(chance, nodes) & (nodes > 0)).long().cumprod(1).sum(1)
        children = tree.tokens.roll(-1, 1)[rows, accepted]
        p, last = probs[rows, accepted], (~tree.is_padding).sum(1) - 1
        residual = relaxed(p, q[rows, accepted], children)[1]
        law = torch.where((accepted < last)[:, None], residual, p)
        return Verdict(tree.path_to(accepted), accepted, noise.draw(law))

    def chances(self, tree: DraftTree, probs: Tensor, q: Tensor) -> Tensor:
        """-> [B, N - 1] the chance that a token is kept, given that those before it are."""
        index = tree.tokens[:, 1:, None]
        drafted, own = (laws[:, :-1].gather(2, index)[..., 0] for laws in (q, probs))  # [B, M]
        own = own.masked_fill(tree.is_padding[:, 1:], 0)  # behind an image's end, in runs of its own
        ratio = own / drafted.clamp(min=torch.finfo(own.dtype).tiny)
        starts = torch.cat([torch.ones_like(own[:, :1], dtype=torch.bool), own.diff(dim=1) < 0], 1)
        run = starts.cumsum(1)
        is_same = run[:, None] == run[..., None]  # [B, M, M]
        whole = (is_same * own[:, None]).sum(-1)
        behind = (is_same.triu(1) * own[:, None]).sum(-1)
        is_judged = (behind < self.share * whole) | (whole == 0)
        joint = [torch.ones_like(own[:, 0])]  # Π p/q of the judged tokens of a run, up to this one
        for start, factor in zip(starts.unbind(1), torch.where(is_judged, ratio, 1).unbind(1), strict=True):
            joint.append(torch.where(start, 1, joint[-1]) * factor)
        # a token is kept if u < the largest joint value from it to the end of its run: the run is kept at least so far
        kept = torch.stack(joint[1:], 1).clamp(max=1)
        kept = torch.where(is_same.triu(), kept[:, None], 0).amax(-1)
        before = torch.where(starts, 1, kept.roll(1, 1))
        return torch.where(before > 0, kept / before, 0)
