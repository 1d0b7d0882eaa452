"""One enumerated round: on a target and a drafter given as tables, whose tree may be altered before it is judged, or by
random laws."""

from collections.abc import Callable

import torch
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.laws import enumeration
from lantern.laws.enumeration import ScriptedNoise, ScriptedProposals, Scripts, every_outcome, num_children
from lantern.laws.tables import TableTarget, sequence_law
from lantern.sampling import Sampling
from lantern.types import AcceptanceRule, Drafter, DraftTree, StatefulTreePolicy, Verdict, Verification

ROOT = 1  # the token committed before an enumerated round


def law_of_one_round(
    target: TableTarget,
    drafter: Drafter,
    verification: Verification,
    rule: AcceptanceRule,
    sampling: Sampling,
    alter: Callable[[DraftTree], DraftTree] = lambda tree: tree,
) -> Tensor:
    """[V] * (L - 1): the joint law of all tokens behind ROOT when one round commits the first of them and the target
    draws the others; every order of children, coin and token enumerated. `alter` changes the grown tree."""

    def run(scripts: Scripts) -> list[tuple[int, ...]]:
        batch = len(scripts)
        target.allocate(batch, drafter.num_nodes)
        drafter.allocate(batch)
        rows = torch.arange(batch)
        if isinstance(drafter.tree, StatefulTreePolicy):
            drafter.tree.allocate(batch, target.grid, rows.device)
        drafter.begin(target.prefill([""] * batch, rows), rows)
        tokens_left = torch.full((batch,), target.num_tokens - 1)
        proposals = ScriptedProposals(scripts, num_children(drafter, target.vocab_size))
        tree = alter(drafter.draft(torch.full((batch,), ROOT), tokens_left, proposals))
        probs = sampling.law(target.verify(tree).logits)
        return committed(tree, verification(tree, probs, rule, ScriptedNoise(scripts)))

    ahead = sequence_law(target, sampling, [ROOT])
    law = torch.zeros_like(ahead)
    for tokens, weight in every_outcome(run):
        rest = ahead[tokens]
        law[tokens] += weight * (rest / rest.sum() if rest.sum() > 0 else torch.full_like(rest, 1 / rest.numel()))
    return law


def committed(tree: DraftTree, verdict: Verdict) -> list[tuple[int, ...]]:
    """The tokens each row commits: the accepted ones and the verdict's own."""
    rows = zip(tree.tokens, verdict.path, verdict.accepted.tolist(), verdict.next_token.tolist(), strict=True)
    return [(*tokens[path[1 : accepted + 1]].tolist(), token) for tokens, path, accepted, token in rows]


def deviation(target: TableTarget, *round_parts, **others) -> float:
    """How far law_of_one_round is from the target's law, at the worst sequence."""
    sampling = round_parts[3]
    law = law_of_one_round(target, *round_parts, **others)
    return float((law - sequence_law(target, sampling, [ROOT])).abs().max())


def deviation_of_images(target: TableTarget, drafter: Drafter, verification: Verification, sampling: Sampling) -> float:
    """How far the enumerated law of whole images is from the target's, at the worst of them."""
    law = enumeration.law_of_images(target, drafter, verification, Exact(), sampling)
    return float((law - sequence_law(target, sampling)).abs().max())


def mean_accepted(verification: Verification, seed: int, parents: list[int], ranks: int = 1) -> float:
    """Expected draft tokens accepted, every draw enumerated; children of a node are drawn without replacement."""
    generator = torch.Generator().manual_seed(seed)
    size = len(parents)
    p, q = (torch.rand(1, size, 4, generator=generator, dtype=torch.float64).pow(2) for _ in range(2))
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)

    def run(scripts: Scripts) -> list[int]:
        batch, everyone = len(scripts), torch.ones(len(scripts), dtype=torch.bool)
        tokens = torch.zeros(batch, size, dtype=torch.long)
        for node in range(size):
            left = q[:, node].repeat(batch, 1)
            for child in [child for child in range(size) if parents[child] == node]:
                tokens[:, child] = scripts.choose(left, everyone)
                left = left.scatter(1, tokens[:, child, None], 0)
        tree = DraftTree(tokens, torch.tensor(parents).expand(batch, -1), q.expand(batch, -1, -1), width=ranks)
        return verification(tree, p.expand(batch, -1, -1), Exact(), ScriptedNoise(scripts)).accepted.tolist()

    return sum(accepted * weight for accepted, weight in every_outcome(run))
