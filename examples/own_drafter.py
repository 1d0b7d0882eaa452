"""A drafter of your own that grows a tree: python examples/own_drafter.py
It needs no training: image tokens resemble their neighbours, so codes near the parent's in the codebook are drafted."""

from functools import partial

import torch

import lantern
from lantern.types import TreePolicy


class Resembling:
    """Implements lantern.types.Drafter. q of a node falls with the distance between a code and the node's own."""

    name, weights_hash = "resembling", None
    forwards, forward_s = 0, 0.0  # of a network, of which it has none

    def __init__(self, codebook, tree: TreePolicy, spread: float) -> None:
        self.tree, self.num_nodes, self.depth = tree, tree.num_nodes, tree.depth
        self.log_q = -torch.cdist(codebook.float(), codebook.float()).square() / spread  # [V, V]

    def draft(self, roots, tokens_left, proposals):  # roots [B], tokens_left [B] -> DraftTree
        return self.tree.grow(roots, tokens_left, self.expand, proposals)

    def expand(self, tokens, parents, depth):  # tokens [B, W] of a level -> log q [B, W, V] of their children
        return self.log_q[tokens].log_softmax(-1)

    # A drafter with a state keeps it here, one line an image of the batch.
    def allocate(self, batch_size): ...  # before a batch
    def begin(self, prefill, rows): ...  # new images in these rows
    def observe(
        self, tree, forward, probs, verdict
    ): ...  # after every round: the target's features and laws, what was accepted
    def keep(self, rows): ...  # the other images are finished


model = lantern.load("llamagen")
drafter = partial(Resembling, codebook=model.target.codebook, spread=0.1)  # the tree is filled in
for tree in ("chain", "static"):
    images = model.generate(["a red sphere on wood"], seed=1, drafter=drafter, tree=tree)
    print(f"{tree}: {images.statistics.tokens_per_step:.2f} tokens per step")
images.pil()[0].save("own_drafter.png")
