"""A learned drafter before a Jacobi window, which nobody has published: the target's last pass says little of the very
next tokens, whose context it changed, and EAGLE a lot; further on the window, which costs nothing, is as good. The
drafter grows its tree, and the window's guesses continue behind the likeliest of its deepest nodes."""

from pathlib import Path

import torch
from torch import Tensor

from lantern.drafters.eagle import Eagle
from lantern.drafters.loading import load_eagle
from lantern.drafters.window import Redraw, Start, Window
from lantern.errors import LanternError
from lantern.sampling import Sampling
from lantern.types import PADDING, DraftTree, Forward, Proposals, Target, TreePolicy, Verdict


class EagleJacobi:
    """Implements lantern.types.Drafter, for shared noise: what stands behind another context is no draw from any q."""

    name = "eagle_jacobi"

    def __init__(self, eagle: Eagle, length: int, start: Start, redraw: Redraw) -> None:
        """length: of the window's part that continues the tree, in tokens."""
        self.eagle, self.length, self.tree, self.weights_hash = eagle, length, eagle.tree, eagle.weights_hash
        self.num_nodes, self.depth = eagle.num_nodes + length, eagle.depth + length
        self.window = Window(self.depth, eagle.target.num_tokens, start, redraw)

    @property
    def forwards(self) -> int:
        return self.eagle.forwards

    def allocate(self, batch_size: int) -> None:
        target = self.eagle.target
        self.eagle.allocate(batch_size, self.depth + 1)
        self.window.allocate(batch_size, target.vocab_size, target.codebook.float())

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        self.eagle.begin(prefill, rows)
        self.window.begin(prefill, rows)

    def draft(self, roots: Tensor, room: Tensor, proposals: Proposals) -> DraftTree:
        """Raises LanternError under ratio verification."""
        if proposals.keeps_law:
            raise LanternError("drafter=eagle_jacobi joins two trees; use verification=shared_noise")
        tree = self.eagle.draft(roots, room, proposals)
        return continued(tree, self.window.guess(roots, proposals).tokens, self.length, room.to(roots.device))

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        self.eagle.observe(tree, forward, probs, verdict)
        self.window.observe(tree, probs, verdict)

    def keep(self, rows: Tensor) -> None:
        self.eagle.keep(rows)
        self.window.keep(rows)


def continued(tree: DraftTree, guess: Tensor, length: int, room: Tensor) -> DraftTree:
    """The tree with `length` tokens of guess [B, W], one a position behind the root, in a chain behind the eldest of
    its deepest nodes."""
    batch, size = tree.tokens.shape
    leaf = tree.depths.masked_fill(tree.is_padding, -1).argmax(1, keepdim=True)
    depth = tree.depths.gather(1, leaf) + torch.arange(length, device=leaf.device)  # of each one's parent
    parents = torch.cat([leaf, torch.arange(size, size + length - 1, device=leaf.device).expand(batch, -1)], 1)
    parents = parents.masked_fill(depth + 1 >= room[:, None], PADDING)
    return DraftTree(torch.cat([tree.tokens, guess.gather(1, depth)], 1), torch.cat([tree.parents, parents], 1))


def load_eagle_jacobi(
    checkpoint: str | Path,
    length: int,
    start: Start,
    redraw: Redraw,
    target: Target,
    tree: TreePolicy,
    sampling: Sampling,
) -> EagleJacobi:
    """See load_eagle."""
    return EagleJacobi(load_eagle(checkpoint, target, tree, sampling), length, start, redraw)
