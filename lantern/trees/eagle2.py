"""EAGLE-2's dynamic tree (2406.16858, section 4): a beam expands the most likely nodes of each level, then the
most likely nodes of all levels are kept. Ours: under shared noise, likely means likely to be picked, as estimated."""

from torch import Tensor

from lantern.errors import LanternError
from lantern.trees.beam import Beam, BeamTree
from lantern.types import DraftTree, Expand, Proposals


class Eagle2Tree(BeamTree):
    """A TreePolicy of fixed size and depth, whose shape follows from the draft laws."""

    kind = "eagle2"

    def __init__(self, total: int, depth: int, width: int, name: str = "eagle2") -> None:
        super().__init__(total, depth, width, name)
        if total < depth:
            raise LanternError(f"tree.total={total} is less than depth={depth}; give as many nodes at least")
        self.check_room()

    def grow(self, roots: Tensor, tokens_left: Tensor, expand: Expand, proposals: Proposals) -> DraftTree:
        levels = min(self.depth, int(tokens_left.max()) - 1)
        ends = None if int(tokens_left.min()) > levels else tokens_left.to(roots.device)  # the copy waits
        beam = Beam(roots, self.width)
        for depth in range(levels):
            log_chance = proposals.topk_scores(expand(beam.tokens, beam.expansions, depth), depth)
            beam.grow(log_chance, None if ends is None else (depth + 1 >= ends)[:, None, None])
        return beam.tree(self.total)
