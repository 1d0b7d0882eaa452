import pytest
import torch
from support.masked_unroll import masked_levels, masked_unroll
from support.parity import assert_training_and_decoding_agree
from support.tiny_tasks import drafter_task
from support.uploads import Uploads
from torch import Tensor, nn

from lantern.drafters.eagle.eagle import Eagle
from lantern.drafters.eagle.network import EagleNetwork, ParallelNetwork
from lantern.sampling import Sampling
from lantern.training.drafter import unroll as chain_attention
from lantern.training.drafter.unroll import all_roots, detached_unroll, parallel_passes, unroll


@torch.no_grad()
def test_passes_equal_chains_run_one_by_one():
    """Reference: each chain recomputed from its root with plain causal attention, target features up to the root, the
    drafter's own behind it."""
    generator = torch.Generator().manual_seed(0)
    length, dim = 7, 8
    network = EagleNetwork(dim, 2, 16)
    embeddings, features = torch.randn(2, 1, length, dim, generator=generator)
    rotation = torch.randn(1, length, 2, dim // 2, generator=generator)
    passes = list(unroll(network, embeddings, features, rotation, all_roots(0, length, 3)))
    for root in range(length):
        inputs = features.clone()
        for d in range(3):
            row = root + d
            if row >= length:
                break
            outputs = network(embeddings[:, : row + 1], inputs[:, : row + 1], rotation[:, : row + 1], None)
            assert torch.allclose(passes[d][:, root], outputs[:, row], atol=1e-6)
            if row + 1 < length:
                inputs[:, row + 1] = outputs[:, row]


LENGTH, DIM, DEPTH = 23, 8, 4
NETWORKS = {
    "eagle": (lambda: EagleNetwork(DIM, 2, 16), unroll, masked_unroll),
    "parallel": (lambda: ParallelNetwork(DIM, 2, 16, DEPTH), parallel_passes, masked_levels),
}
KEPT = {
    "all": all_roots(2, LENGTH, DEPTH),
    "some": [torch.tensor([0, 3, 4, 9, 18])] * 3,
    "fewer": [torch.tensor([1, 3, 4, 9, 17]), torch.tensor([3, 9, 17]), torch.tensor([9])],
}


def made(name: str) -> tuple[nn.Module, list[Tensor], Tensor]:
    """A network, its inputs, which ask for gradients, and rotary factors."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = NETWORKS[name][0]().double()
        inputs = [torch.randn(2, LENGTH, DIM, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        return network, inputs, torch.randn(1, LENGTH, 2, DIM // 2, dtype=torch.float64)


@pytest.mark.parametrize("at_once", [1, 5, 128])
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("name", NETWORKS)
def test_chains_with_one_key_a_pass_equal_masked_passes(name, kept, at_once, monkeypatch):
    """Outputs and gradients. Catches a chain that attends behind its root, to another chain or not to its own tokens,
    and blocks or dropped chains that shift it."""
    monkeypatch.setattr(chain_attention, "CHAINS_AT_ONCE", {"cpu": at_once})
    (network, inputs, rotation), roots = made(name), KEPT[kept]
    _, passes, masked = NETWORKS[name]
    found = list(passes(network, *inputs, rotation, roots))
    whole = list(masked(network, *inputs, rotation, DEPTH))
    expected = [
        whole[0],
        *(outputs[:, at + d] for d, (outputs, at) in enumerate(zip(whole[1:], roots, strict=True), 1)),
    ]
    weights = [*inputs, *network.parameters()]
    gradients = []
    for outputs in (found, expected):
        loss = sum((part.square() * (d + 1)).sum() for d, part in enumerate(outputs))
        gradients.append(torch.autograd.grad(loss, weights, allow_unused=True))
    for part, slow in zip([*found, *gradients[0]], [*expected, *gradients[1]], strict=True):
        torch.testing.assert_close(part, slow, rtol=1e-9, atol=1e-9)


def test_no_gradient_passes_through_detached_features():
    """Of the last pass alone: keys of earlier passes carry it, what the pass reads does not."""
    network, (embeddings, features), rotation = made("eagle")
    through = []
    for run in (unroll, detached_unroll):
        outputs = list(run(network, embeddings, features, rotation, all_roots(0, LENGTH, 2)))
        fed_back = torch.autograd.grad(outputs[1].sum(), outputs[0], allow_unused=True)[0]
        through.append(fed_back is not None and bool(fed_back.any()))
    assert through == [True, False]


@pytest.mark.parametrize("cfg_scale", [1.0, 2.0])
@torch.no_grad()
def test_training_and_decoding_see_the_same_drafter(target, cfg_scale):
    """Catches rows, cache slots, pairs or guidance that differ between the two."""
    target = target.configured(cfg_scale)
    task = drafter_task(target, Sampling(cfg_scale=cfg_scale))
    task.network.fc.weight.add_(0.1 * torch.randn(16, 32, generator=torch.Generator().manual_seed(2)))
    assert_training_and_decoding_agree(task, Eagle)


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_a_pass_uploads_its_chains_once(name):
    """Catches indices of the processor in every operation of a pass, each of which waits for the device."""
    (network, inputs, rotation), roots = made(name), KEPT["fewer"]
    moved = [part.to("meta") for part in (network, *inputs, rotation)]
    with Uploads() as uploads:
        assert len(list(NETWORKS[name][1](*moved, roots))) == len(roots) + 1
    assert uploads.count == len(roots)
