"""Total variation, and distance in the codebook, between the target's p and the law of the committed token."""

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from sys import maxsize

import numpy as np
import torch
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.acceptance.neighbours import distances, nearest
from lantern.acceptance.relaxed import Relaxation
from lantern.metrics.intervals import clustered_mean
from lantern.metrics.metric import Figures
from lantern.metrics.profile import logits_of
from lantern.metrics.visits import RecordingDrafter, Visit, VisitedPositions, committed_law, record_visits
from lantern.noise import Noise, Purpose, gumbel_argmax, image_seed
from lantern.pipeline import Pipeline
from lantern.runtime.progress_line import ProgressLine
from lantern.sampling import Sampling
from lantern.types import AcceptanceRule, RoundReader, Target, Verification, WholeImageDrafter, abilities_of

RANKS = 256  # of neighbours that mass is moved to; the rest is moved to any code
ROWS_AT_ONCE = 1024  # of a table of distances
QUANTILES = (0.5, 0.9)
ROUNDING = 1e-6  # of a total variation
Bounds = tuple[float, float]
CLOSED, REDRAWN = 0.01, 1.3e-4  # images that a position, and a redraw of it, are foreseen to take as long as
FLOOR_STRIDE = 3  # the exact rule is measured at every third position: it takes as long as the rule itself


class CodeDistance:
    """Expected distance between a token drawn from p and the committed one, under a coupling in which they are equal as
    often as possible: a code's surplus mass moves to its nearest codes with a deficit. The value is the cost of one
    transport plan and so an upper bound of the Wasserstein distance W1(p, law)."""

    def __init__(self, codebook: Tensor, ranks: int = RANKS) -> None:
        """codebook [V, C]"""
        self._codebook = codebook.double()
        near = nearest(codebook, min(ranks, len(codebook) - 1))
        far = distances(codebook, near)
        self._unit = float(far[:, 0].mean()) or 1.0  # 1 where all codes are equal
        self._to, self._cost = near.T.contiguous(), (far / self._unit).T.contiguous()  # [K, V]

    def of_tokens(self, one: Tensor, other: Tensor) -> Tensor:
        """Two tensors [...] of codes -> their distances [...]."""
        return (self._codebook[one] - self._codebook[other]).norm(dim=-1) / self._unit

    def of_laws(self, p: Tensor, law: Tensor) -> float:
        """Cost of moving p [V] to the law [V]."""
        surplus, lack = (p - law).double().clamp(min=0), (law - p).double().clamp(min=0)
        total = surplus.new_zeros(())
        for to, cost in zip(self._to, self._cost, strict=True):
            demand = torch.zeros_like(lack).scatter_add_(0, to, surplus)
            share = torch.where(demand > 0, lack / demand, 0).clamp(max=1)  # the same share for every sender
            sent = surplus * share[to]
            total += sent @ cost
            surplus, lack = surplus - sent, lack - torch.minimum(demand, lack)
        return float(total + self._anywhere(surplus, lack))

    def _anywhere(self, surplus: Tensor, lack: Tensor) -> Tensor:
        """Moves each surplus to all codes with a deficit, in proportion to it."""
        senders, receivers = surplus.nonzero()[:, 0], lack.nonzero()[:, 0]
        mass = torch.maximum(surplus.sum(), lack.sum())  # equal but for rounding
        costs = [
            surplus[some] @ torch.cdist(self._codebook[some], self._codebook[receivers]) @ lack[receivers]
            for some in senders.split(ROWS_AT_ONCE)
        ]
        return sum(costs, surplus.new_zeros(())) / (self._unit * mass.clamp(min=torch.finfo(mass.dtype).tiny))


class OutputTV(VisitedPositions):
    """Total variation and code distance at visited positions."""

    least_redraws = 1

    def foreseen(self, pipeline: Pipeline) -> dict[str, tuple[float, float]]:
        """Empty where no law is measured."""
        by_noise = abilities_of(pipeline.verification).picks_by_noise
        has_branches = pipeline.drafter.num_nodes > pipeline.drafter.depth + 1
        looks_ahead = by_noise and not pipeline.rule.lossless and isinstance(pipeline.rule, Relaxation) and has_branches
        if not self.num_positions or pipeline.sampling.is_greedy or looks_ahead:
            return {}
        images = REDRAWN * self.redraws if pipeline.drafter.tree.kind == "static" else CLOSED
        positions = {"position": (self.num_positions * (1 + 1 / FLOOR_STRIDE), images)}
        last = {"plain": (self.num_images, 1.0)} if by_noise else positions if _is_of_its_node(pipeline) else {}
        return super().foreseen(pipeline) | last

    def measure(self, pipeline: Pipeline, prompts: Sequence[str], seeds: Sequence[int], batch_size: int) -> Figures:
        """Row keys: output_tv and code_distance with bounds and quantiles over positions, and the estimator's name;
        least_output_tv where a token's law depends on more than its node, as under block verification.

        Empty where no law is measured: at temperature 0, and for a relaxed rule under shared noise on a tree with
        branches, whose path depends on later tokens.
        """
        if not (work := self.foreseen(pipeline)):
            return {}
        prompts, seeds = list(prompts)[: self.num_images], list(seeds)[: self.num_images]
        if "plain" in work:
            return _compare_picks(pipeline, prompts, seeds, batch_size)
        if "position" not in work:
            return _least(record_visits(pipeline, prompts, seeds, batch_size, only_roots=True))
        length = pipeline.target.num_tokens - 1
        stride = max(1, len(prompts) * length // self.num_positions)
        while gcd(stride, length) > 1:  # else every image would be sampled at the same positions
            stride -= 1
        visits = record_visits(pipeline, prompts, seeds, batch_size, stride)
        return self.of_visits(visits, pipeline.rule, pipeline.verification, CodeDistance(pipeline.target.codebook))

    def of_visits(
        self, visits: Sequence[Visit], rule: AcceptanceRule, verification: Verification, codes: CodeDistance
    ) -> Figures:
        """Row keys of given positions. The floor is the exact rule's value with the same redraws, which would be 0 with
        infinitely many; output_tv_redraws is None where every position has a closed form."""
        noise = self._noise(visits[0].p)

        def distances_of(judge: AcceptanceRule, where: Sequence[Visit]) -> np.ndarray:  # [N, 2]
            found = []
            for visit in where:
                law = committed_law(visit, judge, verification, noise)
                found.append((total_variation(visit.p, law), codes.of_laws(visit.p, law)))
                ProgressLine.done("position", 1)
            return np.array(found)

        moved = distances_of(rule, visits)
        floor = moved if type(rule) is Exact else distances_of(Exact(), visits[::FLOOR_STRIDE])
        images = np.array([visit.image for visit in visits])
        is_redrawn = any(visit.q is not None and len(visit.children) > 1 for visit in visits)
        row = {
            **summary("output_tv", moved[:, 0], images), "output_tv_floor": float(floor[:, 0].mean()),
            "output_tv_redraws": self.redraws if is_redrawn else None,
            "output_tv_estimator": "redrawn children" if is_redrawn else "closed form",
            **summary("code_distance", moved[:, 1], images, (0.0, np.inf)),
            "code_distance_floor": float(floor[:, 1].mean()),
        }  # fmt: skip
        return row if rule.lossless else _bound_unseen(row, moved[:, 0], images)

    def _noise(self, like: Tensor) -> Tensor:  # [V] -> [S, V]
        noise = Noise(1, len(like), 0, like.device)
        noise.admit(torch.zeros(1, dtype=torch.long), torch.tensor([image_seed(0, "redraws")], device=like.device))
        return noise.gumbel(Purpose.CHILDREN, torch.arange(self.redraws, device=like.device)[None])[0]


def _is_of_its_node(pipeline: Pipeline) -> bool:
    """Whether the law of a committed token follows from p, q and the children of its node."""
    draws_from_q = getattr(pipeline.drafter, "lossless", True)
    is_of_it = abilities_of(pipeline.verification).law_is_of_its_node
    return is_of_it and draws_from_q and not isinstance(pipeline.rule, RoundReader)


def _least(visits: Sequence[Visit]) -> Figures:
    """A lower bound of the output TV from the tokens alone, if drafts are committed too often. Codes with α p > q,
    where α is the sum of min(p, q), come from the residual more often than from the draft. The bound is their
    probability in p minus their share among the first tokens of rounds; for the exact law it is 0 on average."""
    found = []
    for visit in visits:
        if visit.q is not None and len(visit.children):
            p, q = visit.p.double(), visit.q.double()
            favoured = torch.minimum(p, q).sum() * p > q
            found.append((float(p[favoured].sum()) - float(favoured[visit.token]), visit.image))
    if not found:
        return {}
    rarer, images = map(np.array, zip(*found, strict=True))
    mean, low, high = clustered_mean(rarer, images)
    bounds = {"least_output_tv_low": low, "least_output_tv_high": high, "least_output_tv_positions": len(rarer)}
    return {"least_output_tv": mean, **bounds}


def _compare_picks(pipeline: Pipeline, prompts: list[str], seeds: list[int], batch_size: int) -> Figures:
    """The share of tokens that differ from plain decoding's pick behind the same prefix, with the same noise: an upper
    bound of the total variation on a chain."""
    target, codes = pipeline.target, CodeDistance(pipeline.target.codebook, ranks=1)
    drafter = pipeline.drafter
    if not isinstance(drafter, WholeImageDrafter):  # which has no rounds to tell of
        drafter = RecordingDrafter(drafter, maxsize, length=target.num_tokens)
    tokens = replace(pipeline, drafter=drafter).generate(prompts, seeds, batch_size).tokens.to(target.codebook.device)
    batches = [slice(start, start + batch_size) for start in range(0, len(prompts), batch_size)]
    picks = torch.cat([plain_picks(target, pipeline.sampling, prompts[b], seeds[b], tokens[b]) for b in batches])
    images = np.repeat(np.arange(len(tokens)), tokens.shape[1])
    both = picks != tokens, codes.of_tokens(picks, tokens)
    differs, apart = (values.double().flatten().cpu().numpy() for values in both)  # [B L]
    row = summary("output_tv", differs, images) | summary("code_distance", apart, images, (0.0, np.inf))
    row["output_tv_estimator"] = "differing picks"
    return row if pipeline.lossless else _bound_unseen(row, differs, images)


@torch.inference_mode()
def plain_picks(
    target: Target, sampling: Sampling, prompts: Sequence[str], seeds: Sequence[int], tokens: Tensor
) -> Tensor:
    """tokens [B, L] -> plain decoding's pick [B, L] at each position, given the tokens before it and the same noise.
    One pass for each position, which commits the given token instead of the pick."""
    device, batch = target.codebook.device, len(tokens)
    noise, picks = Noise(batch, target.vocab_size, 0, device), []
    noise.admit(torch.arange(batch, device=device), torch.tensor(list(seeds), device=device))
    for position, logits in enumerate(logits_of(target, prompts, tokens.to(device), 1)):
        if position:
            noise.advance([1] * batch, torch.ones_like(noise.position))
        picks.append(gumbel_argmax(sampling.law(logits[:, -1]), noise.noise_of_chain(1)[:, 0]))
        ProgressLine.done("plain", batch / tokens.shape[1])
    return torch.stack(picks, 1)


def total_variation(p: Tensor, law: Tensor) -> float:
    """Of two laws [V]: half their L1 distance."""
    return float((p.double() - law.double()).abs().sum() / 2)


def summary(name: str, found: np.ndarray, images: np.ndarray, within: Bounds = (0.0, 1.0)) -> dict[str, object]:
    """Mean, its 95 % bounds, and quantiles of values at positions [N] of images [N]. The bounds resample whole images,
    as positions of one image are alike; they are nan for a single image, and clipped to the values' range `within`."""
    mean, low, high = clustered_mean(found, images)
    quantiles = {f"{name}_q{int(100 * level)}": float(np.quantile(found, level)) for level in QUANTILES}
    bounds = {f"{name}_low": float(np.maximum(low, within[0])), f"{name}_high": float(np.minimum(high, within[1]))}
    return {name: mean, **bounds, **quantiles, f"{name}_positions": len(found)}


def _bound_unseen(row: dict[str, object], found: np.ndarray, images: np.ndarray) -> Figures:
    """The row of a lossy rule. If the rule changed no law at the measured positions, it may still change others: the
    upper bound then assumes a TV of 1 where it does, and that all positions of an image are alike. The distance in the
    codebook has no largest value, so it gets no bound."""
    if found.max() > ROUNDING:
        return row
    count = len(np.unique(images))
    highest = 1 - 0.05 ** (1 / count) if count > 1 else np.nan  # a higher share would show with a probability of 95 %
    return row | {"output_tv_high": highest, "code_distance_high": np.nan}
