"""Enumeration of randomness by replay. Every draw is a branch. A run replays the branches it is given and takes the
first possible one at other draws; each alternative there starts another run. Runs go side by side, one a batch row."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import prod

import torch
from torch import Tensor

from lantern.laws.tables import TableTarget, many_images
from lantern.sampling import Sampling
from lantern.trees.static import StaticTree
from lantern.types import AcceptanceRule, Drafter, DraftTree, Proposals, Verdict, Verification
from lantern.verification.block import BlockProposals
from lantern.verification.ratio import RatioProposals

ENUMERATED = ("sample_scores", "topk_scores", "redraw")  # of RatioProposals
ROUNDED = 1e-6  # the mass of a law in float32 differs by less from 1 unless a drafter errs
Branches = dict[Hashable, tuple[int, float]]  # by the place of a draw: which alternative, and its probability


class OtherNoiseError(AttributeError):
    """A verification asked for randomness that is not enumerated, or for the same twice."""


class NoLawError(ValueError):
    """There was nothing to draw from: a law of zeros or NaN."""


class Scripts:
    """Row b takes the branches given[b], and the first possible one at every other draw; weights[b]: its probability.
    A place names a draw within its row. Other rows may force a row to make useless draws, such as children behind its
    image's end; so a branch counts even if its draw is not met."""

    def __init__(self, given: Sequence[Branches]) -> None:
        self._taken = [dict(branches) for branches in given]
        self._draws = [0] * len(given)
        self._met: list[set[Hashable]] = [set() for _ in given]
        self.untried: list[Branches] = []

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def weights(self) -> list[float]:
        return [prod(probability for _, probability in taken.values()) for taken in self._taken]

    def choose(self, law: Tensor, asked: Tensor, places: Sequence[Hashable] | None = None) -> Tensor:
        """law [B, M], asked [B], places [B], else the number of the draw -> branch [B], 0 for a row not asked."""
        found = torch.zeros(len(self), dtype=torch.long)
        laws = law.tolist()
        for row in asked.nonzero()[:, 0].tolist():
            self._draws[row] += 1
            found[row] = self._branch(row, laws[row], places[row] if places else self._draws[row])
        return found

    def _branch(self, row: int, law: list[float], place: Hashable) -> int:
        taken, mass = self._taken[row], sum(weight for weight in law if weight > 0)
        if place in self._met[row]:
            raise OtherNoiseError(f"{place} is drawn twice in one round")
        if not mass > 0:
            raise NoLawError(f"{place} is drawn from {law}")
        self._met[row].add(place)
        if place not in taken:
            first, *others = [(branch, weight / mass) for branch, weight in enumerate(law) if weight > 0]
            self.untried += [taken | {place: other} for other in others]
            taken[place] = first
        return taken[place][0]


def every_outcome(run: Callable[[Scripts], list]) -> Iterator[tuple[object, float]]:
    """All (result, probability) of a run, which returns one result a row."""
    waiting: list[Branches] = [{}]
    while waiting:
        scripts = Scripts(waiting)
        yield from zip(run(scripts), scripts.weights, strict=True)
        waiting = scripts.untried


class ScriptedNoise:
    """The part of lantern.noise.Noise that verifications with coins use."""

    def __init__(self, scripts: "Scripts | RowScripts") -> None:
        self._scripts = scripts

    def __getattr__(self, name: str) -> None:
        raise OtherNoiseError(f"noise.{name} is not enumerated")

    def accepts(self, probability: Tensor, node: Tensor) -> Tensor:
        """As Noise.accepts. Node 0, the root, marks rows in which nothing is left to judge. In a chain [B, M] a coin is
        tossed only if all coins before it were true."""
        chance, goes_on = (part.reshape(len(node), -1) for part in (probability.clamp(0, 1), node > 0))
        coins = torch.stack([1 - chance, chance], -1)
        found, nodes = torch.zeros_like(goes_on), node.reshape(len(node), -1)
        for place in range(coins.shape[1]):
            asked = goes_on[:, place] & found[:, :place].all(1)
            tossed = [("coin", number) for number in nodes[:, place].tolist()]
            found[:, place] = self._scripts.choose(coins[:, place], asked, tossed).bool()
        return found.view(node.shape)

    def draw(self, law: Tensor) -> Tensor:
        return self._scripts.choose(law, torch.ones(len(law), dtype=torch.bool))


class ScriptedProposals:
    """RatioProposals with every draw enumerated: guesses of windows, and children in every order in which they can be
    drawn without replacement. num_children counts them by node, or is the most that any node has."""

    needs_draft_law = True

    def __init__(
        self, scripts: "Scripts | RowScripts", num_children: Sequence[int] | int, is_coupled: bool = True
    ) -> None:
        """is_coupled: whether guesses are coupled to their former draws, else they are drawn anew."""
        self._scripts, self._num_children, self._is_coupled = scripts, num_children, is_coupled

    def sample_scores(self, log_q: Tensor, nodes: Tensor, depth: int) -> Tensor:
        rows = torch.arange(len(log_q))
        scores = torch.full_like(log_q, -1e3).masked_fill(log_q == -torch.inf, -torch.inf)
        for slot in range(log_q.shape[1]):
            left, most = log_q[:, slot].softmax(-1), self._num_children
            for rank in range(most if isinstance(most, int) else most[int(nodes[slot])]):
                asked = left.sum(-1) > 0
                code = self._scripts.choose(left, asked, [("child", depth, slot, rank)] * len(left))
                scores[rows[asked], slot, code[asked]] = -float(rank)
                left[rows[asked], code[asked]] = 0
        return scores

    def topk_scores(self, log_q: Tensor, depth: int) -> Tensor:
        return log_q.log_softmax(-1)

    def redraw(self, laws: Tensor) -> Tensor:
        everyone = torch.ones(len(laws), dtype=torch.bool)
        drawn = [self._draw_guess(law, everyone, offset) for offset, law in enumerate(laws.unbind(1))]
        return torch.stack(drawn, dim=1)

    def redraw_coupled(self, laws: Tensor, former: Tensor, former_laws: Tensor, known: Tensor) -> Tensor:
        drawn, known = [], known if self._is_coupled else torch.zeros_like(known)
        places = zip(*(x.unbind(1) for x in (laws, former, former_laws)), strict=True)
        for offset, (law, token, old) in enumerate(places):
            is_known, index = offset < known, token[:, None]
            chance = (law.gather(1, index) / old.gather(1, index).clamp(min=torch.finfo(old.dtype).tiny)).clamp(max=1)
            coin = torch.cat([1 - chance, chance], 1)
            keeps = self._scripts.choose(coin, is_known, [("kept", offset)] * len(law)).bool()
            excess = torch.where(is_known[:, None], (law - old).clamp(min=0), law)
            fresh = torch.where(excess.sum(1, keepdim=True) > 0, excess, law)
            drawn.append(torch.where(keeps, token, self._draw_guess(fresh, ~keeps, offset)))
        return torch.stack(drawn, dim=1)

    def _draw_guess(self, law: Tensor, asked: Tensor, offset: int) -> Tensor:
        return self._scripts.choose(law, asked, [("guess", offset)] * len(law))


class RowScripts:
    """Scripts for the rows still in the batch; a place names a draw within one round of its row."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts, self._rows = scripts, torch.arange(len(scripts))
        self._draws = [0] * len(scripts)
        self.position = torch.full((len(scripts),), -1)

    def keep(self, rows: Tensor) -> None:
        self._rows, self.position = self._rows[rows], self.position[rows]
        self._draws = [self._draws[row] for row in rows.tolist()]

    def advance(self, counts: list[int], committed: Tensor) -> None:
        self.position = self.position + committed
        self._draws = [0] * len(self._draws)

    def choose(self, law: Tensor, asked: Tensor, places: Sequence[Hashable] | None = None) -> Tensor:
        for row in asked.nonzero()[:, 0].tolist():
            self._draws[row] += places is None
        of_round = zip(self.position.tolist(), places or self._draws, strict=True)
        size, everywhere = len(self._scripts), self._rows.tolist()
        full: list[Hashable] = [None] * size
        for row, place in zip(everywhere, of_round, strict=True):
            full[row] = place
        laws = law.new_zeros(size, law.shape[1]).index_copy(0, self._rows, law)
        everyone = torch.zeros(size, dtype=torch.bool).index_copy(0, self._rows, asked)
        return self._scripts.choose(laws, everyone, full)[self._rows]


class LoopNoise(ScriptedNoise):
    """Scripted noise for the whole loop of decoding."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = RowScripts(scripts)
        super().__init__(self.scripts)
        self.advance, self.keep = self.scripts.advance, self.scripts.keep

    @property
    def position(self) -> Tensor:
        return self.scripts.position

    def admit(self, rows: Tensor, seeds: Tensor) -> None: ...


@dataclass(frozen=True)
class _ScriptedSampling(Sampling):
    scripts: Scripts | None = None

    def noise(self, *sizes: object) -> LoopNoise:
        return LoopNoise(self.scripts)


@dataclass(frozen=True)
class _ScriptedVerification:
    """A verification for which children and guesses are drawn by the scripts, if it proposes them as ratio or block."""

    verification: Verification
    num_children: Sequence[int] | int
    name: str = "scripted"
    head_s: float = 0.0

    def proposals(self, noise: LoopNoise) -> Proposals:
        kind = self.verification.proposals
        draws = [(getattr(kind, name, None), getattr(RatioProposals, name)) for name in ENUMERATED]
        couplings = [RatioProposals.redraw_coupled, BlockProposals.redraw_coupled]
        coupling = getattr(kind, "redraw_coupled", None)
        if any(found is not known for found, known in draws) or coupling not in couplings:
            raise OtherNoiseError(f"{kind} are not enumerated")
        return ScriptedProposals(noise.scripts, self.num_children, coupling is couplings[0])

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: LoopNoise) -> Verdict:
        if (laws := tree.draft_probs) is not None and laws.dtype == torch.float32:  # whose rounding is no deviation
            mass = laws.double().sum(-1, keepdim=True)
            tree = replace(tree, draft_probs=laws / mass.where((mass - 1).abs() < ROUNDED, torch.ones_like(mass)))
        return self.verification(tree, probs, rule, noise)


def law_of_images(
    target: TableTarget, drafter: Drafter, verification: Verification, rule: AcceptanceRule, sampling: Sampling
) -> Tensor:
    """[V] * L: the joint law of an image's tokens, every order of children, coin and token of every round enumerated.
    OtherNoiseError for a verification that reads other noise."""
    judged = _ScriptedVerification(verification, num_children(drafter, target.vocab_size))
    settings = {field.name: getattr(sampling, field.name) for field in fields(Sampling)}

    def run(scripts: Scripts) -> list[tuple[int, ...]]:
        scripted = _ScriptedSampling(**settings, scripts=scripts)
        images = many_images(target, drafter, judged, scripted, rule, len(scripts))
        return [tuple(tokens) for tokens in images.tolist()]

    law = torch.zeros([target.vocab_size] * target.num_tokens, dtype=torch.float64)
    for tokens, weight in every_outcome(run):
        law[tokens] += weight
    return law


def num_children(drafter: Drafter, vocab_size: int) -> list[int] | int:
    """Children of each node of a static tree, in the order of its paths; for other trees, the most that a node has."""
    tree = drafter.tree
    if type(tree) is StaticTree:
        return [sum(path[:-1] == node for path in tree.paths) for node in [(), *tree.paths]]
    return min(getattr(tree, "width", vocab_size), vocab_size)
