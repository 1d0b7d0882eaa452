"""How far a rule moves the law of a committed token: the total variation between the target's p and that law, averaged
over redraws of the children from q. Coins are not tossed but integrated out of the verification's own walk."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.decoding import Loop
from lantern.errors import LanternError
from lantern.metrics.code_distance import CodeDistance
from lantern.metrics.recording_drafter import RecordingDrafter, Visit, one_level
from lantern.metrics.reference_samples import plain_picks
from lantern.noise import Noise, Purpose, image_seed
from lantern.sampling import Sampling
from lantern.types import AcceptanceRule, Drafter, Generation, Site, Target, Verification
from lantern.verification.ratio import Ratio

CELLS = 1 << 20  # of a table [rows, V] worked on at once: what stays in a cache
QUANTILES = (0.5, 0.9)
FLOOR_STRIDE = 3  # of the positions at which the exact rule is measured, too; it takes as long as the rule itself


class Pipeline(Protocol):
    """What is asked of one; a dataclass, so that its drafter can be replaced."""

    target: Target
    drafter: Drafter
    verification: Verification
    rule: AcceptanceRule
    sampling: Sampling
    loop: Loop | None

    def generate(self, prompts: Sequence[str], seeds: Sequence[int], batch_size: int) -> Generation: ...


@dataclass(frozen=True)
class At:
    """A rule as it judges the children of a node at this depth, for walks that begin at that node."""

    rule: AcceptanceRule
    depth: int

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return self.rule.judge(p, q, x, site._replace(depth=site.depth + self.depth))


class Refusals:
    """Stands in for noise: refuses every child and remembers with what probability it would have been accepted, and the
    law that is left once all are refused."""

    def __init__(self) -> None:
        self.accept: list[Tensor] = []  # [S] by child
        self.left: Tensor | None = None  # [S, V]

    def accepts(self, probability: Tensor, node: Tensor) -> Tensor:
        self.accept.append(torch.where(node > 0, probability, 0))  # node 0 stands for rows with no child left
        return torch.zeros_like(probability, dtype=torch.bool)

    def draw(self, law: Tensor) -> Tensor:
        self.left = law
        return law.argmax(-1)


@torch.inference_mode()
def conditional(
    codes: Tensor, p: Tensor, q: Tensor | None, rule: AcceptanceRule, verification: Verification
) -> tuple[Tensor, Tensor]:
    """codes [S, M] of children, -1 for none -> the probability [S, M] with which each is committed, and the law [S, V]
    of what is drawn in place of them, scaled by the probability that all are refused."""
    refusals = Refusals()
    tree, probs = one_level(codes, p, q)
    verification(tree, probs, rule, refusals)
    reached = torch.ones_like(probs[:, 0, 0])
    shares = []
    for accept in refusals.accept[: codes.shape[1]]:
        shares.append(reached * accept)
        reached = reached * (1 - accept)
    committed = torch.stack(shares, 1) if shares else reached.new_zeros(len(codes), 0)
    return committed, reached[:, None] * refusals.left


def committed_law(visit: Visit, rule: AcceptanceRule, verification: Verification, redraws: Tensor) -> Tensor:
    """[V] of the token committed at a visited position, averaged over redraws of its children.

    In closed form where the children were chosen, and for one drawn child. For several drawn ones the first is in
    closed form, too, and those behind a refused first one are drawn anew: redraws [S, V] is their Gumbel noise.
    """
    p, q, count = visit.p, visit.q, len(visit.children)
    if count == 0 or q is None:
        shares, left = conditional(visit.children[None], p, q, rule, verification)
        return left[0].scatter_add(0, visit.children[: shares.shape[1]], shares[0])
    first, refused, left = _first_child(p, q, rule, verification)
    if count == 1:
        return first + left
    codes = _redrawn(q, refused, redraws, count)
    shares, rest = conditional_in_parts(codes, p, q, rule, verification)
    # a first child drawn in proportion to its refusal is refused for certain
    kept = 1 - shares[:, :1]
    scale = refused.sum() / len(codes) / kept.clamp(min=torch.finfo(p.dtype).tiny)
    law = first + (scale * rest).sum(0)
    return law.scatter_add(0, codes[:, 1:].flatten().clamp(min=0), (scale * shares[:, 1:]).flatten())


def conditional_in_parts(
    codes: Tensor, p: Tensor, q: Tensor, rule: AcceptanceRule, verification: Verification
) -> tuple[Tensor, Tensor]:
    """As conditional, in chunks that fit."""
    chunks = codes.split(max(1, CELLS // len(p)))
    parts = [conditional(chunk, p, q, rule, verification) for chunk in chunks]
    shares, left = zip(*parts, strict=True)
    width = codes.shape[1]
    padded = [torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in shares]
    return torch.cat(padded), torch.cat(left)


def _first_child(
    p: Tensor, q: Tensor, rule: AcceptanceRule, verification: Verification
) -> tuple[Tensor, Tensor, Tensor]:
    """Over all first children at once: the law [V] of accepted ones, the probability [V] that each is drawn and
    refused, and the law [V] of what a refusal leaves, all times their probability."""
    support = q.nonzero()[:, 0]
    first, refused, left = torch.zeros_like(p), torch.zeros_like(p), torch.zeros_like(p)
    for codes in support.split(max(1, CELLS // len(p))):
        shares, rest = conditional(codes[:, None], p, q, rule, verification)
        first[codes] = q[codes] * shares[:, 0]
        refused[codes] = q[codes] * (1 - shares[:, 0])
        left += q[codes] @ rest
    return first, refused, left


def _redrawn(q: Tensor, refused: Tensor, redraws: Tensor, count: int) -> Tensor:
    """[S, count] codes: the first in proportion to `refused`, evenly spread over it; the others from q without
    replacement; -1 beyond the support of q."""
    size = len(redraws)
    steps = (torch.arange(size, device=q.device, dtype=torch.float64) + 0.5) / size * refused.double().sum()
    first = torch.searchsorted(refused.double().cumsum(0), steps).clamp(max=len(q) - 1)[:, None]
    scores = (q.log() + redraws).scatter(1, first, -torch.inf)
    width = min(count - 1, len(q))
    others = scores.topk(width, dim=1)
    return torch.cat([first, others.indices.masked_fill(others.values == -torch.inf, -1)], 1)


def total_variation(p: Tensor, law: Tensor) -> float:
    return float((p.double() - law.double()).abs().sum() / 2)


@dataclass(frozen=True)
class OutputTV:
    """`num_positions` visited positions of `num_images` images, each with `redraws` redraws of its children; 0
    positions switch the measurement off."""

    num_images: int
    num_positions: int
    redraws: int

    def __post_init__(self) -> None:
        if self.num_positions < 0 or self.num_images < 1 or self.redraws < 1:
            raise LanternError(
                f"output_tv has num_positions={self.num_positions}, num_images={self.num_images}, "
                f"redraws={self.redraws}; give 1 or more each, or num_positions=0 to switch it off"
            )

    def measure(
        self, pipeline: Pipeline, prompts: Sequence[str], seeds: Sequence[int], batch_size: int
    ) -> dict[str, object]:
        """Row keys: output_tv and code_distance with bounds and quantiles over positions, and by which estimator.
        Under shared noise the share of tokens that are not the target's own pick behind the same prefix: an upper bound
        on a chain. Nothing where there is no law to compare: at temperature 0, under block verification, and for a
        relaxed rule under shared noise on a tree with branches, whose path is chosen by looking ahead."""
        if not self.num_positions or pipeline.sampling.is_greedy or _looks_ahead(pipeline):
            return {}
        prompts, seeds = list(prompts)[: self.num_images], list(seeds)[: self.num_images]
        codes = CodeDistance(pipeline.target.codebook)
        if pipeline.loop or pipeline.verification.name == "shared_noise":
            tokens = pipeline.generate(prompts, seeds, batch_size).tokens.to(pipeline.target.codebook.device)
            groups = [slice(start, start + batch_size) for start in range(0, len(prompts), batch_size)]
            parts = (pipeline.target, pipeline.sampling)
            picks = torch.cat([plain_picks(*parts, prompts[g], seeds[g], tokens[g]) for g in groups])
            moved = summary("output_tv", _numbers(picks != tokens))
            moved |= summary("code_distance", _numbers(codes.of_tokens(picks, tokens)), highest=np.inf)
            return moved | {"output_tv_estimator": "differing picks"}
        if not isinstance(pipeline.verification, Ratio):
            return {}  # what judges a chain as a whole has no law by child
        stride = max(1, len(prompts) * (pipeline.target.num_tokens - 1) // self.num_positions)
        witness = RecordingDrafter(pipeline.drafter, stride)
        replace(pipeline, drafter=witness).generate(prompts, seeds, batch_size)
        return self.of_visits(witness.visits, pipeline.rule, pipeline.verification, codes)

    def of_visits(
        self, visits: Sequence[Visit], rule: AcceptanceRule, verification: Verification, codes: CodeDistance
    ) -> dict[str, object]:
        """As measure, of given positions. A floor is the exact rule's value by the same redraws, at a third of the
        positions; with infinitely many it would be 0. output_tv_redraws is None where all positions have a closed
        form."""
        noise = self._noise(visits[0].p)

        def moved_by(judge: AcceptanceRule, where: Sequence[Visit]) -> np.ndarray:  # [N, 2]
            laws = ((v.p, committed_law(v, At(judge, v.depth), verification, noise)) for v in where)
            return np.array([(total_variation(p, law), codes.of_laws(p, law)) for p, law in laws])

        moved = moved_by(rule, visits)
        floor = moved if type(rule) is Exact else moved_by(Exact(), visits[::FLOOR_STRIDE])
        redrawn = any(visit.q is not None and len(visit.children) > 1 for visit in visits)
        return {
            **summary("output_tv", moved[:, 0]),
            "output_tv_floor": float(floor[:, 0].mean()),
            "output_tv_redraws": self.redraws if redrawn else None,
            "output_tv_estimator": "redrawn children" if redrawn else "closed form",
            **summary("code_distance", moved[:, 1], highest=np.inf),
            "code_distance_floor": float(floor[:, 1].mean()),
        }

    def _noise(self, like: Tensor) -> Tensor:  # [S, V]
        noise = Noise(1, len(like), 0, like.device)
        noise.admit(torch.zeros(1, dtype=torch.long), torch.tensor([image_seed(0, "redraws")], device=like.device))
        return noise.gumbel(Purpose.CHILDREN, torch.arange(self.redraws, device=like.device)[None])[0]


def summary(name: str, found: np.ndarray, highest: float = 1.0) -> dict[str, object]:
    """Of values at positions [N]: their mean, its 95 % bounds as if positions were independent, and quantiles."""
    margin = float(1.96 * found.std(ddof=1) / len(found) ** 0.5) if len(found) > 1 else float("nan")
    mean = float(found.mean())
    quantiles = {f"{name}_q{int(100 * level)}": float(np.quantile(found, level)) for level in QUANTILES}
    bounds = {f"{name}_low": max(0.0, mean - margin), f"{name}_high": min(highest, mean + margin)}
    return {name: mean, **bounds, **quantiles, f"{name}_positions": len(found)}


def _looks_ahead(pipeline: Pipeline) -> bool:
    if pipeline.loop or pipeline.verification.name != "shared_noise" or pipeline.rule.lossless:
        return False
    return hasattr(pipeline.rule, "relax") and pipeline.drafter.num_nodes > pipeline.drafter.depth + 1


def _numbers(values: Tensor) -> np.ndarray:  # [B, L] -> [B L]
    return values.double().flatten().cpu().numpy()
