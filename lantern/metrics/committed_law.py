"""The law of a committed token under ratio verification. Coins are integrated out: the verification itself runs on a
noise that rejects every child, and the probability of each rejection is recorded."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from lantern.metrics.recording_drafter import Visit, one_level
from lantern.types import AcceptanceRule, Site, Verification

TABLE_SIZE = 1 << 20  # entries of a table [rows, V] worked on at once, so that it stays in a cache


@dataclass(frozen=True)
class AtDepth:
    """A rule that judges the children of a root as those of a node at this depth."""

    rule: AcceptanceRule
    depth: int

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return self.rule.judge(p, q, x, site._replace(depth=site.depth + self.depth))


class RejectingNoise:
    """Rejects every child; records its acceptance probability, and the residual law once all are rejected."""

    def __init__(self) -> None:
        self.accept: list[Tensor] = []  # [S] by child
        self.residual: Tensor | None = None  # [S, V]

    def accepts(self, probability: Tensor, node: Tensor) -> Tensor:
        """Rejects, in place of a coin. [S], or [S, N] where all nodes are judged at once, of which the first is the
        root."""
        accept = torch.where(node > 0, probability, 0)  # node 0: the row has no child left
        self.accept.append(accept.view(len(node), -1)[:, 0])
        return torch.zeros_like(probability, dtype=torch.bool)

    def draw(self, law: Tensor) -> Tensor:
        """Records the law; the token is not used."""
        self.residual = law
        return law.argmax(-1)


@torch.inference_mode()
def conditional(
    codes: Tensor, p: Tensor, q: Tensor | None, rule: AcceptanceRule, verification: Verification
) -> tuple[Tensor, Tensor]:
    """codes [S, M] of children, -1 for none -> the probability [S, M] that each is committed, and the residual law
    [S, V], scaled by the probability that all are rejected."""
    noise = RejectingNoise()
    tree, probs = one_level(codes, p, q)
    verification(tree, probs, rule, noise)
    reached = torch.ones_like(probs[:, 0, 0])  # [S]
    shares = []
    for accept in noise.accept[: codes.shape[1]]:
        shares.append(reached * accept)
        reached = reached * (1 - accept)
    committed = torch.stack(shares, 1) if shares else reached.new_zeros(len(codes), 0)
    return committed, reached[:, None] * noise.residual


def committed_law(visit: Visit, rule: AcceptanceRule, verification: Verification, redraws: Tensor) -> Tensor:
    """[V] of the token committed at a visited position, averaged over draws of its children.

    Closed form where the children were chosen, and for one drawn child. For several drawn children only the first has a
    closed form; those behind its rejection are redrawn with the Gumbel noise redraws [S, V].
    """
    p, q, count = visit.p, visit.q, len(visit.children)
    if count == 0 or q is None:
        shares, residual = conditional(visit.children[None], p, q, rule, verification)
        return residual[0].scatter_add(0, visit.children[: shares.shape[1]], shares[0])
    first, rejected, residual = _first_child(p, q, rule, verification)
    if count == 1:
        return first + residual
    codes = _redrawn(q, rejected, redraws, count)
    shares, residuals = _conditional_in_chunks(codes, p, q, rule, verification)
    # the first code is drawn in proportion to its rejection: given its draw, it is rejected for certain
    reached = 1 - shares[:, :1]
    scale = rejected.sum() / len(codes) / reached.clamp(min=torch.finfo(p.dtype).tiny)
    law = first + (scale * residuals).sum(0)
    return law.scatter_add(0, codes[:, 1:].flatten().clamp(min=0), (scale * shares[:, 1:]).flatten())


def _conditional_in_chunks(
    codes: Tensor, p: Tensor, q: Tensor, rule: AcceptanceRule, verification: Verification
) -> tuple[Tensor, Tensor]:
    chunks = codes.split(max(1, TABLE_SIZE // len(p)))
    shares, residuals = zip(*(conditional(chunk, p, q, rule, verification) for chunk in chunks), strict=True)
    return torch.cat([pad(part, (0, codes.shape[1] - part.shape[1])) for part in shares]), torch.cat(residuals)


def _first_child(
    p: Tensor, q: Tensor, rule: AcceptanceRule, verification: Verification
) -> tuple[Tensor, Tensor, Tensor]:
    """Over all first children at once, each [V]: the probability that a code is drawn and accepted, that it is drawn
    and rejected, and the residual law times the probability of a rejection."""
    support = q.nonzero()[:, 0]
    first, rejected, residual = torch.zeros_like(p), torch.zeros_like(p), torch.zeros_like(p)
    for codes in support.split(max(1, TABLE_SIZE // len(p))):
        shares, residuals = conditional(codes[:, None], p, q, rule, verification)
        first[codes] = q[codes] * shares[:, 0]
        rejected[codes] = q[codes] * (1 - shares[:, 0])
        residual += q[codes] @ residuals
    return first, rejected, residual


def _redrawn(q: Tensor, rejected: Tensor, redraws: Tensor, count: int) -> Tensor:
    """[S, count] codes: the first at evenly spaced quantiles of `rejected`, the others drawn from q without
    replacement; -1 beyond the support of q."""
    size = len(redraws)
    steps = (torch.arange(size, device=q.device, dtype=torch.float64) + 0.5) / size * rejected.double().sum()
    first = torch.searchsorted(rejected.double().cumsum(0), steps).clamp(max=len(q) - 1)[:, None]
    scores = (q.log() + redraws).scatter(1, first, -torch.inf)
    others = scores.topk(min(count - 1, len(q)), dim=1)
    return torch.cat([first, others.indices.masked_fill(others.values == -torch.inf, -1)], 1)
