"""A drafter's laws as training sees them and as decoding does."""

import torch
from support.tiny_tasks import MemorySplits
from torch import Tensor

from lantern.training.drafter.drafter_task import DrafterTask
from lantern.types import Drafter

LEVELS = 3


class FollowTokens:
    """A tree that drafts given tokens, to read the drafter's laws along them."""

    num_nodes, num_expanded, depth, width, name, kind = LEVELS + 1, LEVELS + 1, LEVELS, 1, "given", "static"

    def __init__(self, tokens: Tensor) -> None:
        self.tokens = tokens

    def grow(self, roots, tokens_left, expand, proposals):
        parent = torch.zeros(len(roots), 1, dtype=torch.long)
        return [expand(self.tokens[:, d : d + 1], parent + max(0, d - 1), d)[:, 0].softmax(-1) for d in range(LEVELS)]


def assert_training_and_decoding_agree(task: DrafterTask, drafter_of: type[Drafter]) -> None:
    """Compares q behind the first tokens of two stored images. Good validation and poor acceptance in use is the
    commonest complaint about drafters."""
    target, items = task.target, MemorySplits().split("train")[:2]
    tokens, captions = torch.stack([item["tokens"] for item in items]), [item["caption"] for item in items]
    pairs = task._pairs({"tokens": tokens, "caption": captions})
    trained = [
        task.sampling.law(target.head(task._guide_image(outputs)))[:, d]
        for d, outputs in enumerate(task._passes(pairs, LEVELS))
    ]

    drafter = drafter_of(task.network, target, FollowTokens(tokens), task.sampling)
    target.allocate(2, LEVELS + 1)
    drafter.allocate(2)
    rows = torch.arange(2)
    drafter.begin(target.prefill(captions, rows), rows)
    decoded = drafter.draft(tokens[:, 0], torch.full((2,), 15), None)
    for a, b in zip(trained, decoded, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
