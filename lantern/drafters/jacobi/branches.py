"""Side branches of a Jacobi window (ours; the nearest is Lookahead decoding, 2402.02057, whose n-grams are verified
beside its window in one pass). Half the rounds of a plain window end within its first two tokens,
mostly where another code had nearly been picked. Such runners-up are added beside the window, followed by the window's
own tokens; candidates are ranked by the estimated probability that the target follows the window up to them."""

import torch
from torch import Tensor

from lantern.errors import LanternError, check_whole
from lantern.noise import PICK_SPREAD
from lantern.runtime.memory import check_nodes
from lantern.types import PADDING, DraftTree

MAX_RANKS = 4  # codes considered at each position, the picked one included
SETTLED_FACTOR = 2.0  # on log-probability gaps at positions whose context is unchanged since the last pass
COST_PER_FOLLOWER = 0.2  # in log probability, per window token behind a runner-up: guessed for another context
MIN_GAP = -80.0  # of log probabilities: keeps codes without mass finite, above candidates that do not exist


class Branches:
    """Side branches of a window. A candidate node (start, rank, end) is the window's token at position `end`,
    following the runner-up of this rank at position `start`; if end = start, it is the runner-up itself."""

    def __init__(self, length: int, count: int, vocab_size: int, device: torch.device) -> None:
        """length: of the window; count: of the nodes beside it."""
        check_whole("drafter", branches=count)
        self.ranks = min(MAX_RANKS, vocab_size)
        check_nodes(length + count, f"drafter.length={length}, branches={count}")
        most = length * (self.ranks - 1)
        if not 0 <= count <= most:
            raise LanternError(f"drafter.branches={count}: give 0 to {most} nodes beside a window of {length}")
        self.length, self.count = length, count
        positions, ranks = torch.arange(length, device=device), torch.arange(1, self.ranks, device=device)
        start, rank, end = torch.meshgrid(positions, ranks, positions, indexing="ij")
        steps = end - start
        # a strictly increasing cost: no candidate is chosen without the one before it
        self._cost = (steps * COST_PER_FOLLOWER).masked_fill(steps < 0, torch.inf)
        self._parent = torch.where(steps == 0, start, -1).flatten()  # -1: the preceding node
        self._code = (end * self.ranks + torch.where(steps == 0, rank, 0)).flatten()  # index into codes [W, ranks]
        self._window = torch.arange(-1, length, device=device)
        self._preceding = length + torch.arange(count, device=device)

    def tree(
        self, roots: Tensor, tokens_left: Tensor, codes: Tensor, scores: Tensor, settled: Tensor | None = None
    ) -> DraftTree:
        """The window and its `count` likeliest side nodes, cut at the end of each image: see nodes; tokens_left [B] of
        each image, on the host."""
        return self.cut(*self.nodes(roots, codes, scores, settled), tokens_left)

    def nodes(
        self, roots: Tensor, codes: Tensor, scores: Tensor, settled: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """codes, scores [B, W, ranks]: the best codes at each position with their log p + G; settled [B, W]: whether
        the token before a position is the one that the last pass read -> tokens and parents [B, N] of the tree."""
        chosen = self.likeliest(scores, settled)
        parents = self._parent[chosen]
        parents = torch.where(parents < 0, self._preceding, parents)
        tokens = torch.cat([roots[:, None], codes[..., 0], codes.flatten(1).gather(1, self._code[chosen])], 1)
        return tokens, torch.cat([self._window.expand(len(roots), -1), parents], 1)

    def cut(self, tokens: Tensor, parents: Tensor, tokens_left: Tensor) -> DraftTree:
        """Without nodes that no token may follow."""
        tree = DraftTree(tokens, parents)
        if int(tokens_left.min()) > self.length:
            return tree
        is_late = tree.depths >= tokens_left.to(tokens.device)[:, None]
        return DraftTree(tokens, parents.masked_fill(is_late, PADDING))

    def likeliest(self, scores: Tensor, settled: Tensor | None = None) -> Tensor:
        """-> indices [B, count] of the likeliest candidates, ascending. A candidate's estimate is the log probability
        of the window's node at its depth, plus the gap in log p + G from picked code to runner-up, minus its cost."""
        gaps = (scores[..., 1:] - scores[..., :1]) / PICK_SPREAD
        if settled is not None:
            gaps = gaps * torch.where(settled, SETTLED_FACTOR, 1.0)[..., None]
        gaps = gaps.clamp(min=MIN_GAP)  # [B, W, ranks - 1]
        log_reach = -gaps.exp().sum(-1).log1p().cumsum(-1)  # [B, W] of the window's own nodes
        merit = gaps[..., None] + (log_reach[:, None, None] - self._cost)  # [B, start, rank, end]
        return merit.flatten(1).topk(self.count).indices.sort(-1).values
