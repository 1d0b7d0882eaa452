"""How far the law of a committed latent is from the target's, by a two-sample test of tokens behind the same prefix."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lantern.continuous.latent_sampling import GaussianNoise, TokenHead
from lantern.metrics.metric import Figures
from lantern.metrics.output_tv import summary
from lantern.metrics.visits import Visit, VisitedPositions, record_visits
from lantern.noise import image_seed
from lantern.pipeline import Pipeline
from lantern.types import TreeTopology

PERMUTATIONS = 200
LEVEL = 0.05  # of the test


class Comparison(NamedTuple):
    """Of two samples of one size."""

    distance: float  # energy distance over the mean distance of all pairs; unbiased, so that it can be below 0
    p_value: float  # by permutation


class TokenDistance(VisitedPositions):
    """Where a draft with a law is judged. Redraws are tokens of the method and of the target, under fresh noise."""

    least_redraws = 2  # whose distances are taken two by two

    def measure(self, pipeline: Pipeline, prompts: Sequence[str], seeds: Sequence[int], batch_size: int) -> Figures:
        """Row keys: output_distance with bounds and quantiles over positions, and the share of positions at which the
        test tells the laws apart; the floors are those of a second sample of the target. Empty without drafts."""
        if not self.num_positions or not pipeline.drafter.depth:
            return {}
        prompts, seeds = list(prompts)[: self.num_images], list(seeds)[: self.num_images]
        visits = record_visits(pipeline, prompts, seeds, batch_size)
        # where a draft was judged that was drawn from a known condition
        judged = [one for one in visits if len(one.children) and one.q is not None and one.q.isfinite().all()]
        if not judged:
            return {}
        count = min(self.num_positions, len(judged))
        visits = [judged[number * len(judged) // count] for number in range(count)]
        own, floors = zip(*(self.compare(one, pipeline, number) for number, one in enumerate(visits)), strict=True)
        images = np.array([visit.image for visit in visits])
        return {
            **summary("output_distance", np.array([one.distance for one in own]), images, (-np.inf, np.inf)),
            "output_distance_floor": float(np.mean([one.distance for one in floors])),
            "output_told_apart": float(np.mean([one.p_value <= LEVEL for one in own])),
            "output_told_apart_floor": float(np.mean([one.p_value <= LEVEL for one in floors])),
        }

    @torch.inference_mode()
    def compare(self, visit: Visit, pipeline: Pipeline, number: int = 0) -> tuple[Comparison, Comparison]:
        """The method's tokens at a position against the target's, and the target's own; number: of its noise."""
        head = TokenHead(pipeline.target)
        own, one, other = (self._noise(head, f"{name} {number}") for name in ("method", "target", "target again"))
        plain = self._draw(head, visit.p, one)
        again = self._draw(head, visit.p, other)
        return compare_samples(self._committed(head, visit, pipeline, own), plain), compare_samples(again, plain)

    def _committed(self, head: TokenHead, visit: Visit, pipeline: Pipeline, noise: GaussianNoise) -> Tensor:  # [S, C]
        """What verification commits where the draft is drawn from visit.q."""
        count = self.redraws
        draft = self._draw(head, visit.q, noise)
        tokens = torch.stack([torch.zeros_like(draft), draft], 1)
        tree = TreeTopology.chain(1, draft.device).tree(tokens)
        verdict = pipeline.verification(tree, visit.p.expand(count, 2, -1), pipeline.rule, noise)
        return torch.where((verdict.accepted > 0)[:, None], draft, verdict.next_token)

    def _noise(self, head: TokenHead, name: str) -> GaussianNoise:
        device = head.target.codebook.device
        noise = GaussianNoise(self.redraws, head.shape, 1, device, 2)
        seeds = torch.arange(self.redraws, device=device) + image_seed(0, f"{name} redraws") // 2
        noise.admit(torch.arange(self.redraws, device=device), seeds)
        noise.normals(2)  # made here: those of an image's first tokens
        noise.position.fill_(head.target.num_tokens // 2)  # cspd judges no draft at the beginning of an image
        return noise

    def _draw(self, head: TokenHead, condition: Tensor, noise: GaussianNoise) -> Tensor:  # [R D] -> [S, C]
        return head(condition.expand(self.redraws, 1, -1), noise.normals(1)).tokens[:, 0]


def compare_samples(first: Tensor, second: Tensor) -> Comparison:
    """[S, C] each."""
    both, count = torch.cat([first, second]).double(), len(first)
    apart = torch.cdist(both, both)  # [2 S, 2 S]
    generator = torch.Generator().manual_seed(0)
    shuffled = [torch.randperm(2 * count, generator=generator) for _ in range(PERMUTATIONS)]
    order = torch.stack([torch.arange(2 * count), *shuffled]).to(both.device)
    side = torch.where(order < count, 1.0, -1.0).double()
    surplus = ((side @ apart) * side).sum(1)  # of distances within the samples over those across them
    within, across = (apart.sum() + surplus) / 2, (apart.sum() - surplus) / 2
    energy = across / count**2 - within / (count * (count - 1))
    relative = energy * (2 * count * (2 * count - 1)) / apart.sum()
    return Comparison(float(relative[0]), float((relative >= relative[0]).double().mean()))
