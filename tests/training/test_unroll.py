from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from lantern.drafters.eagle.network import EagleNetwork
from lantern.training.drafter import unroll as chain_attention
from lantern.training.drafter.unroll import all_roots, detached_unroll, unroll


def one_by_one(network, embeddings: Tensor, features: Tensor, rotation: Tensor) -> Iterator[list[Tensor]]:
    """Each chain recomputed from its root with plain causal attention, target features up to the root, the drafter's
    own behind it: by root the outputs [B, D] of its passes."""
    for root in range(LENGTH):
        inputs, outputs = features[:, : root + 1], []
        for row in range(root + 1, min(root + DEPTH, LENGTH) + 1):
            outputs.append(network(embeddings[:, :row], inputs, rotation[:, :row], None)[:, -1])
            inputs = torch.cat([inputs, outputs[-1][:, None]], dim=1)
        yield outputs


LENGTH, DIM, DEPTH = 23, 8, 4
KEPT = {
    "all": all_roots(2, LENGTH, DEPTH),
    "some": [torch.tensor([0, 3, 4, 9, 18])] * 3,
    "fewer": [torch.tensor([1, 3, 4, 9, 17]), torch.tensor([3, 9, 17]), torch.tensor([9])],
}


def made(num_layers: int = 1) -> tuple[EagleNetwork, list[Tensor], Tensor]:
    """A network, its inputs, which ask for gradients, and rotary factors."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = EagleNetwork(DIM, 2, 16, num_layers=num_layers).double()
        inputs = [torch.randn(2, LENGTH, DIM, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        return network, inputs, torch.randn(1, LENGTH, 2, DIM // 2, dtype=torch.float64)


@pytest.mark.parametrize("at_once", [1, 5, 128])
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("num_layers", [1, 3])
def test_passes_equal_chains_run_one_by_one(num_layers, kept, at_once, monkeypatch):
    """Outputs and gradients. Catches a chain that attends behind its root, to another chain or not to its own tokens,
    and blocks or dropped chains that shift it."""
    monkeypatch.setattr(chain_attention, "CHAINS_AT_ONCE", {"cpu": at_once})
    (network, inputs, rotation), roots = made(num_layers), KEPT[kept]
    found = list(unroll(network, *inputs, rotation, roots))
    whole = list(one_by_one(network, *inputs, rotation))
    of_pass = [range(LENGTH), *(at.tolist() for at in roots)]
    expected = [torch.stack([whole[root][d] for root in at], dim=1) for d, at in enumerate(of_pass)]
    weights = [*inputs, *network.parameters()]
    gradients = []
    for outputs in (found, expected):
        loss = sum((part.square() * (d + 1)).sum() for d, part in enumerate(outputs))
        gradients.append(torch.autograd.grad(loss, weights, allow_unused=True))
    torch.testing.assert_close([*found, *gradients[0]], [*expected, *gradients[1]], rtol=1e-9, atol=1e-9)


def test_no_gradient_passes_through_detached_features():
    """Of the last pass alone: keys of earlier passes carry it, what the pass reads does not."""
    network, (embeddings, features), rotation = made()
    through = []
    for run in (unroll, detached_unroll):
        outputs = list(run(network, embeddings, features, rotation, all_roots(0, LENGTH, 2)))
        fed_back = torch.autograd.grad(outputs[1].sum(), outputs[0], allow_unused=True)[0]
        through.append(fed_back is not None and bool(fed_back.any()))
    assert through == [True, False]
