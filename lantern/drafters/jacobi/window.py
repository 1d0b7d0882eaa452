"""A Jacobi window: guesses for the positions behind each image's root, refined by every pass of the target (Santilli et
al., 2305.10427; for image models SJD, 2410.01699). Which nodes of a pass yield the next guesses, and their redraw."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from lantern.acceptance.relaxed import normalise
from lantern.certificates import is_ours
from lantern.errors import LanternError, check_whole
from lantern.runtime.memory import check_nodes
from lantern.sampling import Sampling
from lantern.types import DraftTree, Forward, Proposals, Target, Verdict


class Guess(NamedTuple):
    """Tokens [B, W] of the positions behind the root, and the laws [B, W, V] they were drawn from if verification needs
    them."""

    tokens: Tensor
    laws: Tensor | None


@runtime_checkable
class RedrawingProposals(Proposals, Protocol):
    """Proposals of a verification under which a window may be drawn anew each round."""

    def redraw(self, laws: Tensor) -> Tensor: ...  # [B, W, V] -> tokens [B, W]


@runtime_checkable
class PickingProposals(Proposals, Protocol):
    """Proposals of a verification whose noise picks one token per law. tables: the noise that recorded passes read;
    over(*tables): proposals that read only these tables; without tables, the same proposals."""

    tables: tuple[Tensor, ...]

    def over(self, *tables: Tensor) -> Self: ...
    def pick(self, laws: Tensor) -> Tensor: ...  # [B, W, V] -> tokens [B, W]
    def gumbel_topk(self, laws: Tensor, count: int) -> tuple[Tensor, Tensor]: ...  # tokens and scores [B, W, count]


def require_picks(proposals: Proposals, drafter: str) -> PickingProposals:
    """The proposals, for drafters whose guesses are not samples of a law; LanternError if they cannot pick."""
    if not isinstance(proposals, PickingProposals):
        raise LanternError(
            f"drafter={drafter} drafts no draws from a law; use verification=shared_noise and a rule without a "
            "committed law of its own"
        )
    return proposals


KIND = "window"  # of the trees that Jacobi windows are


class Unread(NamedTuple):
    """What is known of a window whose last positions no pass has read."""

    laws: Tensor  # [B, W, V], of which the first `seen` are of their own position; the others repeat the last of these
    seen: Tensor  # [B]
    last: Tensor  # [B] the newest guess that a pass has read, or the root

    @property
    def unseen(self) -> Tensor:  # [B, W]
        return torch.arange(self.laws.shape[1], device=self.seen.device) >= self.seen[:, None]


class Start(Protocol):
    """Initial laws of positions that no pass has read yet. What a start of somebody else returns is normalised."""

    def __call__(self, unread: Unread) -> Tensor: ...  # -> the laws [B, W, V] to draw guesses from


# says by `lossless` whether its guesses are draws from the laws they are judged against; unless it is ours it must
Redraw = Callable[[Proposals, Tensor, Guess, Tensor], Tensor]


class Window:
    """Guesses without a network. State per batch row: the last pass's laws of the positions behind the root, and the
    former guesses there. `laws` [B, W, V] are those from which this round's guesses were drawn."""

    def __init__(self, length: int, target: Target, start: Start, redraw: Redraw, sampling: Sampling) -> None:
        check_whole("drafter", 1, length=length)
        check_nodes(length, f"drafter.length={length}")
        if start is None:
            raise LanternError("drafter.start=null is no way to start; leave it out for the default")
        self.length, self._target, self._start, self._redraw = length, target, start, redraw
        self._sampling, self._start_is_ours = sampling, is_ours(start)

    def allocate(self, batch_size: int) -> None:
        target = self._target
        self._laws = target.codebook.float().new_zeros(batch_size, self.length, target.vocab_size)
        self._former = Guess(torch.zeros_like(self._laws[..., 0], dtype=torch.long), self._laws)
        self._seen = torch.zeros_like(self._former.tokens[:, 0])

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        """The first window starts from the prefix's law alone."""
        law = self._sampling.law(prefill.logits)
        self._laws = self._laws.to(law.dtype)
        self._laws[rows] = law
        self._seen[rows] = 0

    def guess(self, roots: Tensor, proposals: Proposals) -> Guess:
        known = (self._seen - 1).clamp(min=0)  # of the laws that a pass yields, all but the last had a guess
        last = torch.cat([roots[:, None], self._former.tokens], 1).gather(1, known[:, None])[:, 0]
        unread = Unread(self._laws, self._seen, last)
        laws = self._start(unread)
        # drafts are judged as draws from these laws, whatever a start of somebody else returns
        self.laws = laws = laws if self._start_is_ours else normalise(laws.clamp(min=0), unread.laws)
        tokens = self._redraw(proposals, laws, self._former, known)
        self._former = Guess(tokens, laws if proposals.needs_draft_law else None)
        return self._former

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        """Keeps the laws in probs [B, N, V] of the positions behind the verdict's token, and their guesses."""
        nodes, self._seen = stale_nodes(tree, verdict, self.length)
        rows = torch.arange(len(nodes), device=nodes.device)[:, None]
        nodes = nodes if len(nodes) == 1 else nodes + tree.tokens.shape[1] * rows
        self._laws = probs.flatten(0, 1).index_select(0, nodes.flatten()).unflatten(0, nodes.shape)
        behind = verdict.accepted[:, None] + torch.arange(1, self.length + 1, device=nodes.device)
        kept, former = behind.clamp(max=self.length - 1), self._former
        self._former = Guess(former.tokens.gather(1, kept), None if former.laws is None else former.laws[rows, kept])

    def keep(self, rows: Tensor) -> None:
        """Shrinks the batch to these rows, in this order."""
        self._laws, self._seen, former = self._laws[rows], self._seen[rows], self._former
        self._former = Guess(former.tokens[rows], None if former.laws is None else former.laws[rows])


def stale_nodes(tree: DraftTree, verdict: Verdict, length: int) -> tuple[Tensor, Tensor]:
    """-> [B, length]: for each position behind the verdict's token, the node whose law is its stale law: the node
    at its depth that shares most of the accepted path, the first among equals; and [B]: how many positions have such a
    node. The others repeat the last of these nodes, or the accepted leaf."""
    batch, size = tree.tokens.shape
    ahead = torch.arange(1, length + 1, device=tree.tokens.device)
    wanted = verdict.accepted[:, None] + ahead
    if tree.topology and tree.topology.width < 2:  # a chain, which may be long: no node is compared with all others
        return wanted.clamp(max=size - 1), (size - 1 - verdict.accepted).clamp(max=length)
    rows, index = torch.arange(batch, device=ahead.device), torch.arange(size, device=ahead.device)
    leaf = verdict.path[rows, verdict.accepted]
    shared = (tree.ancestors & tree.ancestors[rows, leaf][:, None]).sum(-1)  # [B, N]
    merit = (shared * size + (size - 1 - index)).masked_fill(tree.is_padding, -1)
    at_depth = tree.depths[:, None] == wanted[..., None]  # [B, length, N]
    best = merit[:, None].masked_fill(~at_depth, -1).max(-1)
    seen = (best.values >= 0).sum(1)
    nodes = torch.cat([leaf[:, None], best.indices], 1)  # the accepted leaf if there is no other
    return nodes.gather(1, torch.minimum(ahead, seen[:, None])), seen
