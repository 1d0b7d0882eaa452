"""The positions that a decoding visits, and the law of the token that ratio verification commits there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from lantern.acceptance.committed import CommittedLaw, judge_by_own_law
from lantern.acceptance.exact import Exact
from lantern.draft_tree import PADDING
from lantern.errors import check_whole
from lantern.pipeline import Pipeline
from lantern.runtime.progress_line import ProgressLine
from lantern.types import AcceptanceRule, Drafter, DraftTree, Forward, Site, Verdict, Verification, abilities_of

TABLE_SIZE = 1 << 20  # entries of a table [rows, V] worked on at once, so that it stays in a cache


@dataclass(frozen=True)
class VisitedPositions:
    """How much of decoding is measured: `num_positions` visited positions of `num_images` images, each with `redraws`
    redraws of its children; 0 positions switch the measurement off."""

    num_images: int
    num_positions: int
    redraws: int
    least_redraws: ClassVar[int]

    def __post_init__(self) -> None:
        check_whole("output_tv", 0, num_positions=self.num_positions)
        check_whole("output_tv", 1, num_images=self.num_images)
        check_whole("output_tv", self.least_redraws, redraws=self.redraws)

    def foreseen(self, pipeline: Pipeline) -> dict[str, tuple[float, float]]:
        return {"method": (self.num_images, 1.0)}


class Visit(NamedTuple):
    """A committed position: the laws of its parent node, and the children that were judged there."""

    p: Tensor  # [V]
    q: Tensor | None  # [V] the law the children were drawn from; None: they were chosen
    children: Tensor  # [M] their codes, in order
    depth: int  # of the node
    image: int = 0  # its number, in order of admission
    token: Tensor | None = None  # that was committed there


def record_visits(
    pipeline: Pipeline, prompts: Sequence[str], seeds: Sequence[int], batch_size: int, stride: int = 1,
    only_roots: bool = False,
) -> list[Visit]:  # fmt: skip
    """Every `stride`-th position that decoding visits over all rows; only_roots: of those at which a round begins."""
    recording = RecordingDrafter(pipeline.drafter, stride, only_roots, pipeline.target.num_tokens)
    replace(pipeline, drafter=recording).generate(prompts, seeds, batch_size)
    return recording.visits


class RecordingDrafter:
    """A Drafter that delegates to another one and records the laws that were verified."""

    def __init__(self, drafter: Drafter, stride: int, only_roots: bool = False, length: int = 1) -> None:
        self.drafter, self.stride, self.only_roots, self.length = drafter, stride, only_roots, length
        self.visits: list[Visit] = []
        self._count = self._admitted = 0
        self._images: list[int] = []  # of each row

    def __getattr__(self, name: str) -> Any:
        """All that is not recorded."""
        return getattr(self.drafter, name)

    def allocate(self, batch_size: int) -> None:
        self._images = [0] * batch_size
        self.drafter.allocate(batch_size)

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        for row in rows.tolist():
            self._images[row] = self._admitted
            self._admitted += 1
        self.drafter.begin(prefill, rows)

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        for row, path in enumerate(verdict.paths):
            if self._images[row] in self._images[:row]:
                continue  # a copy that pads a draining batch
            ProgressLine.done("method", len(path) / self.length)
            for depth, node in enumerate(path[:1] if self.only_roots else path):
                if self._count % self.stride == 0:
                    token = verdict.next_token[row] if node == path[-1] else tree.tokens[row, path[depth + 1]]
                    children = tree.tokens[row, tree.parents[row] == node]
                    q = None if tree.draft_probs is None else tree.draft_probs[row, node].clone()
                    self.visits.append(Visit(probs[row, node].clone(), q, children, depth, self._images[row], token))
                self._count += 1
        self.drafter.observe(tree, forward, probs, verdict)

    def keep(self, rows: Tensor) -> None:
        self._images = [self._images[row] for row in rows.tolist()]
        self.drafter.keep(rows)


def committed_law(visit: Visit, rule: AcceptanceRule, verification: Verification, redraws: Tensor) -> Tensor:
    """The law [V] of the token committed at a visited position, averaged over draws of its children.

    Closed form if the children were chosen, or if one child was drawn. Of several drawn children only the first has a
    closed form; the later ones, given its rejection, are redrawn with the Gumbel noise redraws [S, V].
    """
    p, q, count = visit.p, visit.q, len(visit.children)

    def judge(codes: Tensor) -> tuple[Tensor, Tensor]:
        return _judge_children(codes, p, q, _AtDepth(rule, visit.depth), verification)

    if count == 0 or q is None:
        shares, residual = judge(visit.children[None])
        return residual[0].scatter_add(0, visit.children[: shares.shape[1]], shares[0])
    chunk = max(1, TABLE_SIZE // len(p))
    if (own := _law_of_first(visit, rule, verification)) is not None:
        law = torch.minimum(q, own)
        rejected, residual = q - law, own - law
    else:
        law, rejected, residual = (torch.zeros_like(p) for _ in range(3))
        for codes in q.nonzero()[:, 0].split(chunk):  # all first children
            shares, residuals = judge(codes[:, None])
            law[codes] = q[codes] * shares[:, 0]
            rejected[codes] = q[codes] * (1 - shares[:, 0])
            residual += q[codes] @ residuals
    if count == 1:
        return law + residual
    codes = _redraw_children(q, rejected, redraws, count)
    shares, residuals = zip(*map(judge, codes.split(chunk)), strict=True)
    shares = torch.cat([pad(part, (0, count - part.shape[1])) for part in shares])
    # the first code is drawn in proportion to its rejection: given its draw, it is rejected for certain
    scale = rejected.sum() / len(codes) / (1 - shares[:, :1]).clamp(min=torch.finfo(p.dtype).tiny)
    law = law + (scale * torch.cat(residuals)).sum(0)
    return law.scatter_add(0, codes[:, 1:].flatten().clamp(min=0), (scale * shares[:, 1:]).flatten())


def _law_of_first(visit: Visit, rule: AcceptanceRule, verification: Verification) -> Tensor | None:
    """The law r [V] such that a first child is accepted with probability min(1, r/q); None if the rule has no such law
    for all of them: Cool-SD accepts by more or less than its own law."""
    if not abilities_of(verification).law_is_of_its_node:
        return None
    if type(rule) is Exact:  # a rule that is lossless at some settings has a `relax` of its own
        return visit.p
    if getattr(type(rule), "judge", None) is judge_by_own_law and isinstance(rule, CommittedLaw):
        depth = torch.full((1,), visit.depth + 1, device=visit.p.device)
        return rule.law(visit.p[None], visit.q[None], depth)[0]
    return None


@torch.inference_mode()
def _judge_children(
    codes: Tensor, p: Tensor, q: Tensor | None, rule: AcceptanceRule, verification: Verification
) -> tuple[Tensor, Tensor]:
    """codes [S, M] of a node's children, -1 for none -> the probability [S, M] that each is committed, and the residual
    law [S, V], scaled by the probability that all are rejected. The coins are integrated out."""
    noise, (rows, count) = _RejectingNoise(), codes.shape
    root = codes.new_zeros(rows, 1)
    parents = torch.cat([root - 1, torch.where(codes < 0, PADDING, 0)], 1)
    law, probs = (None if own is None else own.expand(rows, count + 1, -1) for own in (q, p))
    verification(DraftTree(torch.cat([root, codes.clamp(min=0)], 1), parents, law), probs, rule, noise)
    reached = p.new_ones(rows)
    shares = []
    for accept in noise.accept[:count]:
        shares.append(reached * accept)
        reached = reached * (1 - accept)
    committed = torch.stack(shares, 1) if shares else reached.new_zeros(rows, 0)
    return committed, reached[:, None] * noise.residual


@dataclass(frozen=True)
class _AtDepth:
    """A rule that judges the children of a root as those of a node at this depth."""

    rule: AcceptanceRule
    depth: int

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return self.rule.judge(p, q, x, site._replace(depth=site.depth + self.depth))


class _RejectingNoise:
    """Rejects every child; records its acceptance probability, and the residual law once all are rejected."""

    def __init__(self) -> None:
        self.accept: list[Tensor] = []  # [S] by child
        self.residual: Tensor | None = None  # [S, V]

    def accepts(self, probability: Tensor, node: Tensor) -> Tensor:
        """In place of a coin. [S], or [S, N] where all nodes are judged at once, of which the first is the root."""
        accept = torch.where(node > 0, probability, 0)  # node 0: the row has no child left
        self.accept.append(accept.view(len(node), -1)[:, 0])
        return torch.zeros_like(probability, dtype=torch.bool)

    def draw(self, law: Tensor) -> Tensor:
        """Records the law; the token is not used."""
        self.residual = law
        return torch.zeros_like(law[:, 0], dtype=torch.long)


def _redraw_children(q: Tensor, rejected: Tensor, redraws: Tensor, count: int) -> Tensor:
    """[S, count] codes: the first at evenly spaced quantiles of `rejected`, the others drawn from q without
    replacement; -1 beyond the support of q."""
    size = len(redraws)
    steps = (torch.arange(size, device=q.device, dtype=torch.float64) + 0.5) / size * rejected.double().sum()
    first = torch.searchsorted(rejected.double().cumsum(0), steps).clamp(max=len(q) - 1)[:, None]
    scores = (q.log() + redraws).scatter(1, first, -torch.inf)
    others = scores.topk(min(count - 1, len(q)), dim=1)
    return torch.cat([first, others.indices.masked_fill(others.values == -torch.inf, -1)], 1)
