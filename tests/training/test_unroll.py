import pytest
import torch

from lantern.drafters.eagle import Eagle
from lantern.drafters.eagle_network import EagleNetwork
from lantern.sampling import Sampling
from lantern.training.unroll import unroll

from .conftest import MemorySplits
from .test_tasks import drafter_task


@torch.no_grad()
def test_passes_equal_chains_run_one_by_one():
    """The slow twin recomputes each chain from its root with plain causal attention: true features up to the root, the
    drafter's own behind it."""
    generator = torch.Generator().manual_seed(0)
    length, dim = 7, 8
    network = EagleNetwork(dim, 2, 16)
    embeddings, features = torch.randn(2, 1, length, dim, generator=generator)
    rotation = torch.randn(1, length, 2, dim // 2, generator=generator)
    passes = list(unroll(network, embeddings, features, rotation, depth=3))
    for root in range(length):
        inputs = features.clone()
        for d in range(3):
            row = root + d
            if row >= length:
                break
            outputs = network(embeddings[:, : row + 1], inputs[:, : row + 1], rotation[:, : row + 1], None)
            assert torch.allclose(passes[d][:, row], outputs[:, row], atol=1e-6)
            if row + 1 < length:
                inputs[:, row + 1] = outputs[:, row]


class FollowTokens:
    """A tree that drafts given tokens, to read the drafter's laws along them."""

    num_nodes, num_expanded, depth, width, name, kind = 4, 4, 3, 1, "given", "static"

    def __init__(self, tokens: torch.Tensor) -> None:
        self.tokens = tokens

    def grow(self, roots, room, expand, proposals):
        parent = torch.zeros(len(roots), 1, dtype=torch.long)
        return [expand(self.tokens[:, d : d + 1], parent + max(0, d - 1), d)[:, 0].softmax(-1) for d in range(3)]


@pytest.mark.parametrize("cfg_scale", [1.0, 2.0])
@torch.no_grad()
def test_training_and_decoding_see_the_same_drafter(target, cfg_scale):
    """Good validation and poor acceptance in use is the commonest complaint about drafters: rows, cells, pairs or
    guidance that differ between the two would show here."""
    task = drafter_task(target, Sampling(cfg_scale=cfg_scale))
    task.network.fc.weight.add_(0.1 * torch.randn(16, 32, generator=torch.Generator().manual_seed(2)))
    items = MemorySplits().split("train")[:2]
    tokens, captions = torch.stack([item["tokens"] for item in items]), [item["caption"] for item in items]
    lesson = task._lesson({"tokens": tokens, "caption": captions})
    trained = [task._law(task._guided(outputs))[:, d] for d, outputs in enumerate(task._passes(lesson, 3))]

    tree = FollowTokens(tokens)
    drafter = Eagle(task.network, target, tree, Sampling(cfg_scale=cfg_scale))
    target.allocate(2, 4)
    drafter.allocate(2)
    rows = torch.arange(2)
    drafter.begin(target.prefill(captions, rows), rows)
    decoded = drafter.draft(tokens[:, 0], torch.full((2,), 15), None)
    for a, b in zip(trained, decoded, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
