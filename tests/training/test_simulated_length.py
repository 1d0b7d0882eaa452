"""What validation predicts of decoding against decoding itself: a chain's accepted tokens,
round by round under shared noise, and depth by depth within bounds under ratio verification."""

from typing import NamedTuple

import pytest
import torch
from support import toy
from support.recipes import shipped
from support.tiny_tasks import MemorySplits, drafter_task, fit
from torch import Tensor

from lantern.drafters.eagle.eagle import Eagle
from lantern.noise import image_seed
from lantern.sampling import Sampling
from lantern.training.drafter.drafter_task import DrafterTask
from lantern.trees.static import chain
from lantern.types import Verification
from lantern.verification import Ratio, SharedNoise

DEPTH, IMAGES = 3, 96
SEEDS = [image_seed(0, "parity", i) for i in range(IMAGES)]
CAPTIONS = (MemorySplits().split("train").captions * 8)[:IMAGES]


class Decoded(NamedTuple):
    """Images and, by round, the image, the index of the root's token and the drafts accepted."""

    tokens: Tensor  # [B, L]
    rounds: list[tuple[int, int, int]]


@pytest.fixture(params=["late_unroll", "eagle3", pytest.param("layered", marks=pytest.mark.full)])
def task(request, target, tmp_path) -> DrafterTask:
    """A drafter that a recipe has trained for some steps."""
    task = drafter_task(target.configured(2.0), Sampling(), recipe=shipped(request.param))
    fit(task, tmp_path, max_steps=12)
    return task


def decode(task: DrafterTask, verification: Verification) -> Decoded:
    drafter = Eagle(task.network, task.target, chain(DEPTH), task.sampling)
    generation = toy.decode(task.target, drafter, task.sampling, IMAGES, verification, None, CAPTIONS, SEEDS)
    roots, rounds = [0] * IMAGES, []
    for done in generation.rounds:
        for image, accepted in zip(done.images, done.accepted, strict=True):
            rounds.append((image, roots[image], accepted))
            roots[image] += accepted + 1
    return Decoded(generation.tokens, rounds)


@torch.no_grad()
def predicted(task: DrafterTask, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Overlaps and agreements [depth, B, L - 1] of validation."""
    return task.compare({"tokens": tokens, "caption": CAPTIONS}, torch.tensor(SEEDS))[1:]


def assert_agreed(task: DrafterTask, decoded: Decoded) -> None:
    """In every round the accepted drafts are those before the first disagreement that validation predicts."""
    _, agreements = predicted(task, decoded.tokens)
    length = decoded.tokens.shape[1]
    for image, root, accepted in decoded.rounds:
        drafted = min(DEPTH, length - root - 2)  # the round adds a token of its own
        hits = [bool(agreements[d, image, root + d]) for d in range(drafted)]
        assert accepted == (hits.index(False) if False in hits else drafted)


def deviations(task: DrafterTask, decoded: Decoded) -> list[float]:
    """By depth: accepted drafts minus the sum of their predicted probabilities, in standard deviations."""
    alphas, _ = predicted(task, decoded.tokens)
    length, found = decoded.tokens.shape[1], []
    for d in range(DEPTH):
        reached = [(image, root, a) for image, root, a in decoded.rounds if a >= d and d < length - root - 2]
        chances = torch.stack([alphas[d, image, root + d] for image, root, _ in reached]).double()
        hits = torch.tensor([a > d for *_, a in reached]).double()
        found.append(float((hits - chances).sum() / (chances * (1 - chances)).sum().sqrt()))
    return found


def test_validation_predicts_what_decoding_accepts(task):
    """Under shared noise exactly; under ratio verification each depth within 4.5 standard deviations. Catches good
    validation with poor acceptance in use, the commonest complaint about drafters."""
    decoded = decode(task, SharedNoise())
    assert len({accepted for *_, accepted in decoded.rounds}) == DEPTH + 1
    assert_agreed(task, decoded)
    assert max(map(abs, deviations(task, decode(task, Ratio())))) < 4.5
