"""Speculative sampling over a tree (2211.17192; siblings as in SpecInfer, 2305.09781, and EAGLE, 2401.15077):
siblings are judged in the order drawn, each against what the target has left after the siblings rejected before it."""

import torch
from torch import Tensor

from lantern.acceptance.relaxed import normalise
from lantern.hashing import hash_counters
from lantern.noise import Noise, Purpose
from lantern.types import Abilities, AcceptanceRule, DraftTree, Site, Verdict
from lantern.verification.shared_noise import deepest

AT_ONCE = 8  # drafts of a chain that a CPU judges together: more than are accepted as a rule


class RatioProposals:
    """Children are drawn with noise of their own, or chosen as the most likely codes."""

    needs_draft_law = True  # the walk needs q at every node whose children were drawn

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def sample_scores(self, log_q: Tensor, nodes: Tensor, depth: int) -> Tensor:
        """log_q [B, W, V], nodes [W] or [B, W] -> scores whose order is a draw from q without replacement."""
        return log_q + self._noise.gumbel(Purpose.CHILDREN, self._noise.position[:, None], nodes.expand(len(log_q), -1))

    def topk_scores(self, log_q: Tensor, depth: int) -> Tensor:
        return log_q.log_softmax(-1)

    def redraw_coupled(self, laws: Tensor, former: Tensor, former_laws: Tensor, known: Tensor) -> Tensor:
        """Draws [B, W] from laws [B, W, V]. Maximal coupling (2510.24211) keeps former draws as often as possible: with
        probability 1 - TV(new law, former law). Only the first `known` [B] positions have former draws."""
        offsets = torch.arange(laws.shape[1], device=laws.device)
        coin = self._noise.uniform(Purpose.WINDOW, self._noise.position[:, None], 2 * offsets)
        p, q = (part.gather(2, former[..., None])[..., 0] for part in (laws, former_laws))
        keeps = (coin * q < p) & (offsets < known[:, None])
        excess = torch.where((offsets < known[:, None])[..., None], (laws - former_laws).clamp(min=0), laws)
        return torch.where(keeps, former, self.redraw(torch.where(excess.sum(-1, keepdim=True) > 0, excess, laws)))

    def redraw(self, laws: Tensor) -> Tensor:
        """Draws [B, W] from laws [B, W, V], up to a factor each, by inversion: one random number per draw, where a
        Gumbel race needs one per code. It has 32 bits: with 24, rare codes of a large codebook would never be drawn."""
        noise, steps = self._noise, 2 * torch.arange(laws.shape[1], device=laws.device) + 1
        whole = hash_counters(noise.seeds[:, None], Purpose.WINDOW, noise.position[:, None], steps)
        unit = (whole.double() + 0.5) * 2.0**-32  # within (0, 1)
        heights = laws.double().cumsum(-1)
        drawn = torch.searchsorted(heights, unit[..., None] * heights[..., -1:], right=True)[..., 0]
        return drawn.clamp(max=laws.shape[-1] - 1)  # also for NaN laws, which check_probabilities reports later


class Ratio:
    """Implements lantern.types.Verification for every rule and tree."""

    name = "ratio"
    head_s = 0.0
    proposals = RatioProposals
    abilities = Abilities(law_is_of_its_node=True)

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
        """probs p [B, N, V]. Judges chains several drafts at a time. In other trees a CPU judges only the children
        that the walk reaches; other devices judge all children, without waiting for the device."""
        if tree.topology and tree.topology.width < 2:  # a chain, maybe the root alone
            return judge_chain(tree, probs, rule, noise)
        return (judge_reached_nodes if probs.is_cpu else judge_all_nodes)(tree, probs, rule, noise)


def judge_reached_nodes(tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
    """Walks all rows together: each iteration judges a child of every active row, and synchronises with the device."""
    walk = _Walk(tree, probs)
    while bool((judged := walk.candidate >= 0).any()):
        child = walk.candidate.clamp(min=0)
        x = tree.tokens[walk.rows, child]
        accept, residual = rule.judge(walk.p, walk.q, x, walk.site(child))
        accepted = judged & noise.accepts(accept, child)
        walk.reject(judged & ~accepted, child, x, residual)
        if bool(accepted.any()):
            walk.descend(accepted, child)
    return Verdict(tree.path_to(walk.node), walk.accepted, noise.draw(walk.p))


def judge_chain(tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
    """Judges a chain. The same verdict as judge_reached_nodes()."""
    batch, size, _ = probs.shape
    rows, at_once = torch.arange(batch, device=probs.device), AT_ONCE if probs.is_cpu else size
    left, count = probs[:, -1], torch.full_like(rows, size - 1)
    for first in range(0, size - 1, at_once):
        last = min(first + at_once, size - 1)
        law = probs[:, first:last].flatten(0, 1)
        q = None if tree.draft_probs is None else tree.draft_probs[:, first:last].flatten(0, 1)
        children = torch.arange(first + 1, last + 1, device=probs.device).expand(batch, -1)
        x, depth = tree.tokens[:, first + 1 : last + 1].flatten(), children.flatten()
        node = (size * rows[:, None] + children).flatten()
        accept, residual = rule.judge(law, q, x, Site(depth, torch.zeros_like(depth), law, node))
        accepted = noise.accepts(accept.view(batch, -1), children).long().cumprod(1).sum(1)
        ends = (accepted < last - first) & (count == size - 1)
        residual = residual.view(batch, last - first, -1)[rows, accepted.clamp(max=last - first - 1)]
        left, count = torch.where(ends[:, None], residual, left), torch.where(ends, first + accepted, count)
        if probs.is_cpu and bool((count < size - 1).all()):
            break
    return Verdict(tree.path_to(count), count, noise.draw(left))


def judge_all_nodes(tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
    """Judges the children of all nodes, one rank per step, without synchronising; then follows the accepted path from
    the root. The same verdict as judge_reached_nodes()."""
    batch, size, _ = probs.shape
    index, nodes = torch.arange(size, device=probs.device), torch.arange(batch * size, device=probs.device)
    is_child = tree.parents[:, None] == index[:, None]  # [B, node, child]
    ranks = is_child.cumsum(-1)
    depth, law = tree.depths.flatten() + 1, probs.flatten(0, 1)  # [B N, V]
    p, q = law, None if tree.draft_probs is None else tree.draft_probs.flatten(0, 1)
    followed = torch.full_like(nodes, -1)  # the child that is accepted at each node
    for rank in range(size - 1 if tree.width is None else tree.width):
        child = _first(is_child & (ranks == rank + 1)).flatten()
        judged, child = (child >= 0) & (followed < 0), child.clamp(min=0)
        x = tree.tokens.gather(1, child.view(batch, size)).flatten()
        site = Site(depth, torch.full_like(nodes, rank), law, nodes - nodes % size + child)
        accept, residual = rule.judge(p, q, x, site)
        accepted = judged & noise.accepts(accept.view(batch, size), child.view(batch, size)).flatten()
        followed = torch.where(accepted, child, followed)
        p = torch.where((judged & ~accepted)[:, None], residual, p)
        q = None if q is None else without(q, x)
    rejected = followed.view(batch, size).gather(1, tree.parents[:, 1:].clamp(min=0)) != index[1:]  # by their parents
    last = deepest(tree, rejected)  # of the one path that is left
    p = p.view_as(probs)[torch.arange(batch, device=last.device), last[:, 0]]
    return Verdict(tree.path_to(last[:, 0]), tree.depths.gather(1, last)[:, 0], noise.draw(p))


class _Walk:
    """By batch row: the current node, the child to be judged, and the laws left after its rejected siblings."""

    def __init__(self, tree: DraftTree, probs: Tensor) -> None:
        self.rows = torch.arange(len(probs), device=probs.device)
        self.first_child, self.next_sibling = order_of_children(tree)
        self.probs, self.draft_probs = probs, tree.draft_probs
        self.node = torch.zeros_like(tree.parents[:, 0])
        self.accepted, self.rank = self.node, self.node
        self.candidate = self.first_child[:, 0]
        self.p = self.law = probs[:, 0]
        self.q = None if tree.draft_probs is None else tree.draft_probs[:, 0]

    def site(self, child: Tensor) -> Site:
        return Site(self.accepted + 1, self.rank, self.law, self.probs.shape[1] * self.rows + child)

    def reject(self, rejected: Tensor, child: Tensor, x: Tensor, residual: Tensor) -> None:
        self.p = _where(rejected, residual, self.p)
        self.rank = self.rank + rejected
        self.candidate = torch.where(rejected, self.next_sibling[self.rows, child], -1)
        if self.q is not None and bool((self.candidate >= 0).any()):
            self.q = without(self.q, x)

    def descend(self, accepted: Tensor, child: Tensor) -> None:
        law = self.probs[self.rows, child]
        self.p, self.law = _where(accepted, law, self.p), _where(accepted, law, self.law)
        if self.q is not None and self.draft_probs is not None:
            self.q = _where(accepted, self.draft_probs[self.rows, child], self.q)
        self.node, self.accepted = torch.where(accepted, child, self.node), self.accepted + accepted
        self.rank = self.rank.masked_fill(accepted, 0)
        self.candidate = torch.where(accepted, self.first_child[self.rows, child], self.candidate)


def _where(rows: Tensor, new: Tensor, old: Tensor) -> Tensor:  # [B], [B, V], [B, V] -> [B, V]
    """torch.where without its table, which takes as long as judging, if all rows are meant or none."""
    return new if bool(rows.all()) else torch.where(rows[:, None], new, old) if bool(rows.any()) else old


def order_of_children(tree: DraftTree) -> tuple[Tensor, Tensor]:
    """The first child of each node and its next sibling [B, N], -1 where there is none."""
    index = torch.arange(tree.parents.shape[1], device=tree.parents.device)
    is_child = tree.parents[:, None] == index[:, None]  # [B, node, child]
    is_later_sibling = (tree.parents[:, None] == tree.parents[..., None]) & (index > index[:, None])
    return _first(is_child), _first(is_later_sibling)


def without(q: Tensor, x: Tensor) -> Tensor:  # [M, V], [M] -> [M, V] the law from which the next sibling was drawn
    return normalise(q.scatter(1, x[:, None], 0), 0.0)


def _first(choices: Tensor) -> Tensor:  # [..., N] bool -> [...] first true index, -1 where there is none
    return torch.where(choices.any(-1), choices.byte().argmax(-1), -1)
