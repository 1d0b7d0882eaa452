"""Total variation, and distance in the codebook, between the target's p and the law of the committed token."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
import torch
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.errors import LanternError, is_whole
from lantern.metrics.code_distance import CodeDistance
from lantern.metrics.committed_law import AtDepth, committed_law
from lantern.metrics.intervals import clustered_mean, none_of
from lantern.metrics.plain_picks import plain_picks
from lantern.metrics.recording_drafter import RecordingDrafter, Visit
from lantern.noise import Noise, Purpose, image_seed
from lantern.pipeline import Pipeline
from lantern.types import AcceptanceRule, Verification
from lantern.verification.ratio import Ratio

QUANTILES = (0.5, 0.9)
MOST = 100_000  # redraws, each a row of noise over the codebook
ROUNDING = 1e-6  # of a total variation
FLOOR_STRIDE = 3  # the exact rule is measured at every third position: it takes as long as the rule itself


@dataclass(frozen=True)
class OutputTV:
    """`num_positions` visited positions of `num_images` images, each with `redraws` redraws of its children; 0
    positions switch the measurement off."""

    num_images: int
    num_positions: int
    redraws: int

    def __post_init__(self) -> None:
        sizes = (self.num_positions, self.num_images, self.redraws)
        if not all(map(is_whole, sizes)) or min(sizes) < 0 or 0 in sizes[1:] or sizes[2] > MOST:
            raise LanternError(
                f"output_tv has num_positions={self.num_positions}, num_images={self.num_images}, "
                f"redraws={self.redraws}; give 1 or more each, {MOST} redraws at most, or num_positions=0 for none"
            )

    def measure(
        self, pipeline: Pipeline, prompts: Sequence[str], seeds: Sequence[int], batch_size: int
    ) -> dict[str, object]:
        """Row keys: output_tv and code_distance with bounds and quantiles over positions, and the estimator's name.

        Empty where no law is measured: at temperature 0, under block verification, and for a relaxed rule under shared
        noise on a tree with branches, whose path depends on later tokens.
        """
        if not self.num_positions or pipeline.sampling.is_greedy or _looks_ahead(pipeline):
            return {}
        prompts, seeds = list(prompts)[: self.num_images], list(seeds)[: self.num_images]
        if pipeline.verification.name == "shared_noise":
            return _differing_picks(pipeline, prompts, seeds, batch_size)
        if not isinstance(pipeline.verification, Ratio):
            return {}
        length = pipeline.target.num_tokens - 1
        stride = max(1, len(prompts) * length // self.num_positions)
        while gcd(stride, length) > 1:  # else every image would be sampled at the same positions
            stride -= 1
        recording = RecordingDrafter(pipeline.drafter, stride)
        replace(pipeline, drafter=recording).generate(prompts, seeds, batch_size)
        codes = CodeDistance(pipeline.target.codebook)
        return self.of_visits(recording.visits, pipeline.rule, pipeline.verification, codes)

    def of_visits(
        self, visits: Sequence[Visit], rule: AcceptanceRule, verification: Verification, codes: CodeDistance
    ) -> dict[str, object]:
        """Row keys of given positions. The floor is the exact rule's value with the same redraws, which would be 0 with
        infinitely many; output_tv_redraws is None where every position has a closed form."""
        noise = self._noise(visits[0].p)

        def moved_by(judge: AcceptanceRule, where: Sequence[Visit]) -> np.ndarray:  # [N, 2]
            laws = ((v.p, committed_law(v, AtDepth(judge, v.depth), verification, noise)) for v in where)
            return np.array([(total_variation(p, law), codes.of_laws(p, law)) for p, law in laws])

        moved = moved_by(rule, visits)
        floor = moved if type(rule) is Exact else moved_by(Exact(), visits[::FLOOR_STRIDE])
        images = np.array([visit.image for visit in visits])
        is_redrawn = any(visit.q is not None and len(visit.children) > 1 for visit in visits)
        row = {
            **summary("output_tv", moved[:, 0], images),
            "output_tv_floor": float(floor[:, 0].mean()),
            "output_tv_redraws": self.redraws if is_redrawn else None,
            "output_tv_estimator": "redrawn children" if is_redrawn else "closed form",
            **summary("code_distance", moved[:, 1], images, (0.0, np.inf)),
            "code_distance_floor": float(floor[:, 1].mean()),
        }
        return row if rule.lossless else _unseen(row, moved[:, 0], images)

    def _noise(self, like: Tensor) -> Tensor:  # [V] -> [S, V]
        noise = Noise(1, len(like), 0, like.device)
        noise.admit(torch.zeros(1, dtype=torch.long), torch.tensor([image_seed(0, "redraws")], device=like.device))
        return noise.gumbel(Purpose.CHILDREN, torch.arange(self.redraws, device=like.device)[None])[0]


def _differing_picks(pipeline: Pipeline, prompts: list[str], seeds: list[int], batch_size: int) -> dict[str, object]:
    """The share of tokens that differ from plain decoding's pick behind the same prefix, with the same noise: an upper
    bound of the total variation on a chain."""
    codes = CodeDistance(pipeline.target.codebook)
    tokens = pipeline.generate(prompts, seeds, batch_size).tokens.to(pipeline.target.codebook.device)
    batches = [slice(start, start + batch_size) for start in range(0, len(prompts), batch_size)]
    parts = (pipeline.target, pipeline.sampling)
    picks = torch.cat([plain_picks(*parts, prompts[b], seeds[b], tokens[b]) for b in batches])  # [B, L]
    images = np.repeat(np.arange(len(tokens)), tokens.shape[1])
    differs = _numbers(picks != tokens)
    row = summary("output_tv", differs, images)
    row |= summary("code_distance", _numbers(codes.of_tokens(picks, tokens)), images, (0.0, np.inf))
    row["output_tv_estimator"] = "differing picks"
    return row if pipeline.lossless else _unseen(row, differs, images)


def total_variation(p: Tensor, law: Tensor) -> float:
    """Of two laws [V]: half their L1 distance."""
    return float((p.double() - law.double()).abs().sum() / 2)


def summary(
    name: str, found: np.ndarray, images: np.ndarray, within: tuple[float, float] = (0.0, 1.0)
) -> dict[str, object]:
    """Of values at positions [N] of images [N]: their mean, its 95 % bounds, which draw whole images again, since
    positions of one image resemble one another, and quantiles. within: the range of the values, in which the bounds are
    kept. They are nan for a single image."""
    mean, low, high = clustered_mean(found, images)
    quantiles = {f"{name}_q{int(100 * level)}": float(np.quantile(found, level)) for level in QUANTILES}
    bounds = {f"{name}_low": float(np.maximum(low, within[0])), f"{name}_high": float(np.minimum(high, within[1]))}
    return {name: mean, **bounds, **quantiles, f"{name}_positions": len(found)}


def _unseen(row: dict[str, object], found: np.ndarray, images: np.ndarray) -> dict[str, object]:
    """The row of a lossy rule, with an upper bound where it moved nothing at the positions looked at, since it may move
    others: as if a law that is moved were moved as a whole, and all positions of an image alike. The distance in the
    codebook has no largest value, and so no bound."""
    if found.max() > ROUNDING:
        return row
    count = len(np.unique(images))
    return row | {"output_tv_high": none_of(count) if count > 1 else np.nan, "code_distance_high": np.nan}


def _looks_ahead(pipeline: Pipeline) -> bool:
    if pipeline.verification.name != "shared_noise" or pipeline.rule.lossless:
        return False
    return hasattr(pipeline.rule, "relax") and pipeline.drafter.num_nodes > pipeline.drafter.depth + 1


def _numbers(values: Tensor) -> np.ndarray:  # [B, L] -> [B L]
    return values.double().flatten().cpu().numpy()
