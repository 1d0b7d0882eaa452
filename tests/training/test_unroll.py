import pytest
import torch
from support.parity import assert_training_and_decoding_agree
from training.test_tasks import drafter_task

from lantern.drafters.eagle.eagle import Eagle
from lantern.drafters.eagle.network import EagleNetwork
from lantern.sampling import Sampling
from lantern.training.unroll import unroll


@torch.no_grad()
def test_passes_equal_chains_run_one_by_one():
    """Reference: each chain recomputed from its root with plain causal attention, target features up to the root, the
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


@pytest.mark.parametrize("cfg_scale", [1.0, 2.0])
@torch.no_grad()
def test_training_and_decoding_see_the_same_drafter(target, cfg_scale):
    """Catches rows, cache slots, pairs or guidance that differ between the two."""
    target = target.configured(cfg_scale)
    task = drafter_task(target, Sampling(cfg_scale=cfg_scale))
    task.network.fc.weight.add_(0.1 * torch.randn(16, 32, generator=torch.Generator().manual_seed(2)))
    assert_training_and_decoding_agree(task, Eagle)
