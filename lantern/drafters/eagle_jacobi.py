"""A learned drafter and a Jacobi window under one root (unpublished). EAGLE predicts the next tokens, whose context has
just changed, better than the target's last pass; where the window is right, it often stays right for many tokens. The
window is drafted beside EAGLE's tree and continues it behind the likeliest deepest node."""

from pathlib import Path

import torch
from torch import Tensor

from lantern.drafters.eagle.eagle import Eagle
from lantern.drafters.eagle.kv_state import FeatureTarget
from lantern.drafters.jacobi.window import Redraw, Start, Window
from lantern.drafters.loading import eagle_layer
from lantern.errors import LanternError, check_whole
from lantern.runtime.memory import check_nodes
from lantern.sampling import Sampling
from lantern.types import PADDING, DraftTree, Forward, Proposals, TreeLabel, TreePolicy, TreeTopology, Verdict


class EagleJacobi:
    """Implements lantern.types.Drafter, for shared noise: tokens behind another context are no draws from any q."""

    name = "eagle_jacobi"

    def __init__(self, eagle: Eagle, window: Window, length: int, tail: int) -> None:
        """length: of the window beside the tree, tail: of what continues the tree, in tokens; 0 leaves either out.
        eagle, window: built for joint_depth() levels."""
        depth = joint_depth(eagle.tree, length, tail)
        if min(length, tail) < 0 or length + tail < 1:
            raise LanternError(f"drafter.length={length}, tail={tail}: give 0 or more, and 1 in all at least")
        if min(eagle.state.max_pairs - 1, window.length) < depth:
            raise LanternError(f"the tree and its window have {depth} levels; build both drafters for as many")
        check_nodes(eagle.num_nodes - 1 + length + tail, f"drafter.length={length}, tail={tail}")
        self.eagle, self.window, self.length, self.tail = eagle, window, length, tail
        parts = [eagle.tree.name, *([f"tail_{tail}"] if tail else []), *([f"window_{length}"] if length else [])]
        self.tree, self.weights_hash = TreeLabel("+".join(parts), eagle.tree.kind), eagle.weights_hash
        self.num_nodes, self.depth = eagle.num_nodes + length + tail, depth
        self._topologies: dict[TreeTopology, tuple[TreeTopology, Tensor]] = {}

    @property
    def forwards(self) -> int:
        return self.eagle.forwards

    @property
    def forward_s(self) -> float:
        return self.eagle.forward_s

    @property
    def image_bytes(self) -> int:
        return self.eagle.image_bytes + self.window.image_bytes

    def allocate(self, batch_size: int) -> None:
        self.eagle.allocate(batch_size)
        self.window.allocate(batch_size)

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        self.eagle.begin(prefill, rows)
        self.window.begin(prefill, rows)

    def draft(self, roots: Tensor, room: Tensor, proposals: Proposals) -> DraftTree:
        """Raises LanternError where verification asks for q."""
        if proposals.keeps_law:
            raise LanternError(
                f"drafter={self.name} joins two trees, which no one law was drawn from; use verification=shared_noise "
                "and a rule without a committed law of its own"
            )
        tree = self.eagle.draft(roots, room, proposals)
        guess = self.window.guess(roots, proposals).tokens
        if tree.topology and int(room.min()) > self.depth:
            if tree.topology not in self._topologies:
                self._topologies[tree.topology] = joined(tree.topology, self.length, self.tail)
            topology, order = self._topologies[tree.topology]
            return topology.tree(torch.cat([tree.tokens, guess], 1).index_select(1, order))
        room = room.to(roots.device)
        return beside(continued(tree, guess, self.tail, room), guess, self.length, room)

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        self.eagle.observe(tree, forward, probs, verdict)
        self.window.observe(tree, forward, probs, verdict)

    def keep(self, rows: Tensor) -> None:
        self.eagle.keep(rows)
        self.window.keep(rows)


def joint_depth(tree: TreePolicy, length: int, tail: int) -> int:
    """Levels of a tree that `tail` tokens continue, with a window of `length` tokens beside it. Raises LanternError for
    fractions of tokens."""
    check_whole("drafter", length=length, tail=tail)
    return max(length, tree.depth + tail)


def continued(tree: DraftTree, guess: Tensor, length: int, room: Tensor) -> DraftTree:
    """The tree with `length` tokens of guess [B, W], one per position behind the root, in a chain behind the first of
    its deepest nodes."""
    leaf = tree.depths.masked_fill(tree.is_padding, -1).argmax(1, keepdim=True)
    return _with_chain(tree, guess, leaf, tree.depths.gather(1, leaf), length, room)


def beside(tree: DraftTree, guess: Tensor, length: int, room: Tensor) -> DraftTree:
    """The tree with the first `length` tokens of guess [B, W] in a chain behind its root."""
    root = torch.zeros_like(tree.tokens[:, :1])
    return _with_chain(tree, guess, root, root, length, room)


def joined(topology: TreeTopology, length: int, tail: int) -> tuple[TreeTopology, Tensor]:
    """The topology of a tree continued and with a window beside it, and the index of each node's token [N] among the
    tree's own tokens followed by the guessed ones."""
    size, depth, device = len(topology.parents), int(topology.depths.max()) + tail, topology.parents.device
    room = torch.tensor([max(length, depth) + 1], device=device)
    own, guess = torch.arange(size + max(length, depth), device=device)[None].tensor_split([size], 1)
    tree = beside(continued(topology.tree(own), guess, tail, room), guess, length, room)
    return TreeTopology.of(tuple(tree.parents[0].tolist()), device), tree.tokens[0]


def _with_chain(
    tree: DraftTree, guess: Tensor, node: Tensor, depth: Tensor, length: int, room: Tensor
) -> DraftTree:  # node, depth [B, 1]
    if not length:
        return tree
    batch, size = tree.tokens.shape
    above = depth + torch.arange(length, device=node.device)  # the depth of each one's parent
    parents = torch.cat([node, torch.arange(size, size + length - 1, device=node.device).expand(batch, -1)], 1)
    parents = parents.masked_fill(above + 1 >= room[:, None], PADDING)
    return DraftTree(torch.cat([tree.tokens, guess.gather(1, above)], 1), torch.cat([tree.parents, parents], 1))


def load_eagle_jacobi(
    checkpoint: str | Path,
    length: int,
    tail: int,
    start: Start,
    redraw: Redraw,
    target: FeatureTarget,
    tree: TreePolicy,
    sampling: Sampling,
) -> EagleJacobi:
    """See load_eagle."""
    depth = joint_depth(tree, length, tail)
    network, weights_hash = eagle_layer(checkpoint, target)
    eagle = Eagle(network, target, tree, sampling, weights_hash, depth)
    return EagleJacobi(eagle, Window(depth, target, start, redraw, sampling), length, tail)
