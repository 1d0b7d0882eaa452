"""Rules and trees at six codes, and the law that a rule commits at a visited position, by enumeration."""

import torch
from support.tables import ROOT, law_of_one_round

from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.laws.tables import TableDrafter, TableTarget
from lantern.metrics.output_tv import OutputTV
from lantern.metrics.visits import Visit
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.verification.ratio import Ratio

CODES = 6
CODEBOOK = torch.randn(CODES, 2, generator=torch.Generator().manual_seed(0))
RULES = {
    "exact": Exact(), "lantern": Lantern(CODEBOOK, 3, 0.3), "lantern_pp": LanternPP(CODEBOOK, 4, 3.0),
}  # fmt: skip
TREES = {"one": chain(1), "two": StaticTree([[0], [1]]), "three": StaticTree([[0], [1], [2]])}
TREES |= {"chosen": Eagle2Tree(total=3, depth=1, width=3)}


def enumerated(tree, rule) -> tuple[torch.Tensor, Visit]:
    """The law of the first token of a round by enumeration of all children and coins, and the position it is from."""
    sampling = Sampling()
    target = TableTarget(CODES, 3, cfg_scale=2.0)
    drafter = TableDrafter(target, tree, sampling)
    law = law_of_one_round(target, drafter, Ratio(), rule, sampling).sum(1)
    target.allocate(1, tree.num_nodes)
    drafter.allocate(1)
    target.prefill([""], torch.arange(1))
    seen = []

    def record(grown):
        seen.append(grown)
        return grown

    law_of_one_round(target, drafter, Ratio(), rule, sampling, record)
    grown = seen[0]
    target.allocate(1, tree.num_nodes)
    p = sampling.law(target.verify(type(grown)(*[f[:1] for f in (grown.tokens, grown.parents)])).logits)[0, 0]
    assert grown.tokens[0, 0] == ROOT
    q = None if grown.draft_probs is None else grown.draft_probs[0, 0]
    return law, Visit(p, q, grown.tokens[0, grown.parents[0] == 0], 0)


def noise(redraws: int) -> torch.Tensor:
    return OutputTV(1, 1, redraws)._noise(torch.zeros(CODES))
