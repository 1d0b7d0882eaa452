"""A window whose uncertain places branch, which nobody has published. Half the rounds of a plain window end at its
first two places, mostly where another code had nearly won: such runners-up stand beside it, with its own tokens behind
them. Which of them are worth a node the race says that decided the window's tokens."""

import torch
from torch import Tensor

from lantern.errors import LanternError
from lantern.types import PADDING, DraftTree
from lantern.verification.shared_noise import PICK_SPREAD

RANKS = 4  # the winner of a place and the runners-up that are looked at
SETTLED = 2.0  # how much surer the race is at a place before which nothing has changed since the pass that speaks of it
BEHIND = 0.2  # the price, in log probability, of every token behind a runner-up: it was guessed behind another token
LEAST = -80.0  # of log probabilities: what the law rules out comes last, but before what is no node


class Branches:
    """Side paths of a window: a runner-up at a place, and the window's tokens of the places behind it. All there could
    be are numbered in tables [place, rank, end]: the token of place `end` behind that runner-up, or the runner-up."""

    def __init__(self, length: int, count: int, vocab_size: int, device: torch.device) -> None:
        """length: of the window; count: of the nodes beside it. Raises LanternError for more than there are."""
        self.ranks = min(RANKS, vocab_size)
        most = length * (self.ranks - 1)
        if not 0 <= count <= most:
            raise LanternError(f"drafter.branches={count}: give 0 to {most} nodes beside a window of {length}")
        self.length, self.count = length, count
        places = torch.arange(length, device=device)
        place, rank, end = torch.meshgrid(places, torch.arange(1, self.ranks, device=device), places, indexing="ij")
        steps = end - place
        # no ties: a node never stands without the one before it
        self._price = (steps * BEHIND).masked_fill(steps < 0, torch.inf)
        self._parent = torch.where(steps == 0, place, -1).flatten()  # -1: the node before
        self._code = (end * self.ranks + torch.where(steps == 0, rank, 0)).flatten()  # its place among all [W, ranks]
        self._depth = (end + 1).flatten()
        self._window = torch.arange(-1, length, device=device)
        self._before = length + torch.arange(count, device=device)

    def tree(
        self, roots: Tensor, room: Tensor, codes: Tensor, scores: Tensor, settled: Tensor | None = None
    ) -> DraftTree:
        """codes, scores [B, W, ranks]: at each place the best of the race and their log of law / Exp; settled [B, W]:
        where the token before it is the one that the pass has read; room [B] tokens that images have left, on the host
        -> the window and the `count` likeliest nodes beside it."""
        chosen = self.likeliest(scores, settled)
        parents = self._parent[chosen]
        parents = torch.where(parents < 0, self._before, parents)
        tokens = torch.cat([roots[:, None], codes[..., 0], codes.flatten(1).gather(1, self._code[chosen])], 1)
        window = self._window.expand(len(roots), -1)
        parents = torch.cat([window, parents], 1)
        if int(room.min()) <= self.length:
            depths = torch.cat([window + 1, self._depth[chosen]], 1)
            parents[:, 1:].masked_fill_(depths[:, 1:] >= room.to(roots.device)[:, None], PADDING)
        return DraftTree(tokens, parents)

    def likeliest(self, scores: Tensor, settled: Tensor | None = None) -> Tensor:
        """-> the places [B, count] in the tables, in their order. A node beside the window is reached as often as the
        window's own of that depth, but for the gap in the race where the two part."""
        gaps = (scores[..., 1:] - scores[..., :1]) / PICK_SPREAD
        if settled is not None:
            gaps = gaps * torch.where(settled, SETTLED, 1.0)[..., None]
        gaps = gaps.clamp(min=LEAST)  # [B, W, ranks - 1]
        lost = gaps.exp().sum(-1).log1p().cumsum(-1)  # [B, W] minus the log of how often the window's nodes are reached
        merit = gaps[..., None] - (lost[:, None, None] + self._price)  # [B, place, rank, end]
        return merit.flatten(1).topk(self.count).indices.sort(-1).values
