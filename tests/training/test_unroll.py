from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.parallel import ParallelNetwork
from lantern.training.drafter import unroll as chain_attention
from lantern.training.drafter.unroll import all_roots, detached_unroll, parallel_passes, unroll


def eagle_chains(network, embeddings: Tensor, features: Tensor, rotation: Tensor) -> Iterator[list[Tensor]]:
    """Each chain recomputed from its root with plain causal attention, target features up to the root, the drafter's
    own behind it: by root the outputs [B, D] of its passes."""
    for root in range(LENGTH):
        inputs, outputs = features[:, : root + 1], []
        for row in range(root + 1, min(root + DEPTH, LENGTH) + 1):
            outputs.append(network(embeddings[:, :row], inputs, rotation[:, :row], None)[:, -1])
            inputs = torch.cat([inputs, outputs[-1][:, None]], dim=1)
        yield outputs


def parallel_chains(network, embeddings: Tensor, features: Tensor, rotation: Tensor) -> Iterator[list[Tensor]]:
    """Each root's pairs, then one position a level, which reads the pair at the root and two of the row above."""
    pairs = torch.cat([embeddings, features], dim=-1)
    for root in range(LENGTH):
        ahead = []
        for level, entrance in enumerate(network.ahead, start=1):
            places = [root + 1 + level - ROW + i for i in range(2)]
            above = [pairs[:, i] if FIRST <= i <= root else 0 * pairs[:, 0] for i in places]
            ahead.append((entrance(pairs[:, root]) + network.above(torch.cat(above, -1)))[:, None])
        x = torch.cat([network.fc(pairs[:, : root + 1]), *ahead], dim=1)[:, :LENGTH]
        x = x + network.attention(x, rotation[:, : x.shape[1]], None)
        x = x + network.feed_forward(network.ffn_norm(x))
        for block in network.deeper:
            x = block(x, rotation[:, : x.shape[1]], None)
        yield list(x[:, root : root + DEPTH].unbind(1))


LENGTH, DIM, DEPTH, ROW, FIRST = 23, 8, 4, 4, 3
LEVELS = DIM, 2, 16, DEPTH, ROW, FIRST
NETWORKS = {
    "eagle": (lambda: EagleNetwork(DIM, 2, 16), unroll, eagle_chains),
    "eagle of three layers": (lambda: EagleNetwork(DIM, 2, 16, num_layers=3), unroll, eagle_chains),
    "parallel": (lambda: ParallelNetwork(*LEVELS), parallel_passes, parallel_chains),
    "parallel of two layers": (lambda: ParallelNetwork(*LEVELS, num_layers=2), parallel_passes, parallel_chains),
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
        if isinstance(network, ParallelNetwork):
            nn.init.normal_(network.above.weight)  # of a fresh network it is zero
        inputs = [torch.randn(2, LENGTH, DIM, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        return network, inputs, torch.randn(1, LENGTH, 2, DIM // 2, dtype=torch.float64)


@pytest.mark.parametrize("at_once", [1, 5, 128])
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("name", NETWORKS)
def test_passes_equal_chains_run_one_by_one(name, kept, at_once, monkeypatch):
    """Outputs and gradients. Catches a chain that attends behind its root, to another chain or not to its own tokens,
    and blocks or dropped chains that shift it."""
    monkeypatch.setattr(chain_attention, "CHAINS_AT_ONCE", {"cpu": at_once})
    (network, inputs, rotation), roots = made(name), KEPT[kept]
    _, passes, chains = NETWORKS[name]
    found = list(passes(network, *inputs, rotation, roots))
    whole = list(chains(network, *inputs, rotation))
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
    network, (embeddings, features), rotation = made("eagle")
    through = []
    for run in (unroll, detached_unroll):
        outputs = list(run(network, embeddings, features, rotation, all_roots(0, LENGTH, 2)))
        fed_back = torch.autograd.grad(outputs[1].sum(), outputs[0], allow_unused=True)[0]
        through.append(fed_back is not None and bool(fed_back.any()))
    assert through == [True, False]
