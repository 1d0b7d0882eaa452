"""What drafters of Jacobi windows share: guesses for the positions behind each image's root, refined by every pass of
the target (Santilli et al., 2305.10427; for image models SJD, 2410.01699), and which nodes of a pass yield the next."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from lantern.errors import LanternError
from lantern.types import DraftTree, Proposals, Verdict


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
