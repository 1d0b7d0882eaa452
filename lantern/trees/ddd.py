"""Dynamic depth decoding (2409.00142): EAGLE-2's beam stops at the first checked level with confidence H < tau. H is
the logsumexp of the cumulative log q of the level's nodes; tau depends on the model."""

from collections.abc import Sequence
from math import isnan

import torch
from torch import Tensor

from lantern.errors import LanternError, is_whole
from lantern.trees.beam import Beam, BeamTree
from lantern.types import DraftTree, Expand, Proposals


class DDDTree(BeamTree):
    """A TreePolicy. Under shared noise H is the log of the probability estimated for a pick within the beam."""

    kind = "ddd"

    def __init__(
        self, total: int, depth: int, width: int, tau: float, checks: Sequence[int], name: str = "ddd"
    ) -> None:
        """A row's tree ends after the first level of `checks` with H < tau."""
        super().__init__(total, depth, width, name)
        self.check_room()
        if not all(is_whole(level) and 0 < level < depth for level in checks):
            raise LanternError(f"tree.checks={list(checks)} must be levels below depth={depth} and above 0")
        if isnan(tau):
            raise LanternError(f"tree.tau={tau} is no log of a probability; give 0 or less")
        self.tau, self.checks = tau, tuple(checks)

    def grow(self, roots: Tensor, tokens_left: Tensor, expand: Expand, proposals: Proposals) -> DraftTree:
        levels, tokens_left = min(self.depth, int(tokens_left.max()) - 1), tokens_left.to(roots.device)
        beam, goes_on = Beam(roots, self.width), torch.ones_like(roots, dtype=torch.bool)
        for depth in range(levels):
            log_chance = proposals.topk_scores(expand(beam.tokens, beam.expansions, depth), depth)
            goes_on = goes_on & (depth + 1 < tokens_left)
            beam.grow(log_chance, ~goes_on[:, None, None])
            if depth + 1 in self.checks:
                goes_on = goes_on & (beam.score.logsumexp(1) >= self.tau)
                if not bool(goes_on.any()):  # synchronises with the device; saves drafter forwards
                    break
        return beam.tree(self.total)
