"""EAGLE-2's dynamic tree (2406.16858, section 4): a beam expands the most likely nodes of each level, then the
most likely nodes of all levels are kept. Ours: under shared noise, likely means likely to be picked, as estimated."""

from torch import Tensor

from lantern.errors import LanternError, check_whole
from lantern.runtime.memory import check_nodes
from lantern.trees.beam import Beam
from lantern.types import DraftTree, Expand, Proposals


class Eagle2Tree:
    """A TreePolicy of fixed size and depth, whose shape follows from the draft laws."""

    def __init__(self, total: int, depth: int, width: int, name: str = "eagle2") -> None:
        """total: draft nodes kept; depth: levels; width: children per node and nodes per beam."""
        check_whole("tree", total=total, depth=depth, width=width)
        if min(total, depth, width) < 1 or total < depth:
            raise LanternError(f"tree.total={total}, depth={depth}, width={width}: give 1 or more each, total >= depth")
        if total > width + (depth - 1) * width**2:
            most = width + (depth - 1) * width**2
            raise LanternError(
                f"tree.total={total} is more than the {most} nodes that depth={depth}, width={width} grow"
            )
        check_nodes(max(total, depth, width), f"tree.total={total}, depth={depth}, width={width}")
        self.name, self.kind, self.total, self.depth, self.width = name, "eagle2", total, depth, width
        self.num_nodes, self.num_expanded = total + 1, 1 + (depth - 1) * width

    def grow(self, roots: Tensor, tokens_left: Tensor, expand: Expand, proposals: Proposals) -> DraftTree:
        """roots [B], tokens_left [B] of each image -> DraftTree [B, total + 1]."""
        levels = min(self.depth, int(tokens_left.max()) - 1)
        ends = None if int(tokens_left.min()) > levels else tokens_left.to(roots.device)  # the copy waits
        beam = Beam(roots, self.width)
        for depth in range(levels):
            log_chance = proposals.topk_scores(expand(beam.tokens, beam.expansions, depth), depth)
            beam.grow(log_chance, None if ends is None else (depth + 1 >= ends)[:, None, None])
        return beam.tree(self.total)
