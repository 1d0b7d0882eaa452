"""Multi-step training of a drafter on its own features, at all positions in parallel (HASS, 2408.15766; EAGLE-3's
training-time test). Pass d stands for depth d: a chain's token there reads the output of pass d - 1, and attends to the
committed tokens and to the chain's own."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from lantern.drafters.eagle.network import EagleNetwork, ParallelNetwork
from lantern.training.chain_attention import ChainAttention


class Unroll(Protocol):
    """The passes of a drafter over the positions of images: see unroll."""

    def __call__(
        self, network: nn.Module, embeddings: Tensor, features: Tensor, rotation: Tensor, roots: Sequence[Tensor]
    ) -> Iterator[Tensor]: ...


def unroll(
    network: EagleNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, roots: Sequence[Tensor]
) -> Iterator[Tensor]:
    """embeddings [B, T, D] of tokens, features [B, T, D] of the positions before them -> outputs of the first pass at
    all positions [B, T, D], then of each later pass d at the positions roots + d [B, S, D].

    roots: for each later pass the positions [S] of its chains' roots, ascending, on the host, and among those of the
    pass before.
    """
    return _chains(network, embeddings, features, rotation, roots, lambda outputs: outputs)


def detached_unroll(
    network: EagleNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, roots: Sequence[Tensor]
) -> Iterator[Tensor]:
    """As unroll, without gradient through the features that a pass reads (HASS)."""
    return _chains(network, embeddings, features, rotation, roots, Tensor.detach)


def _chains(
    network: EagleNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, roots: Sequence[Tensor],
    fed_back: Callable[[Tensor], Tensor],
) -> Iterator[Tensor]:  # fmt: skip
    attention, former = ChainAttention(), torch.arange(embeddings.shape[1])
    yield (outputs := network(embeddings, features, rotation, None, attention))
    for d, chains in enumerate(roots, start=1):
        placed, kept = _placed(chains, former, features.device)
        attention.go_on(chains, placed, kept)
        own, at = fed_back(outputs)[:, kept].to(features.dtype), placed + d
        yield (outputs := network(embeddings[:, at], own, rotation[:, at], None, attention))
        former = chains


def parallel_passes(
    network: ParallelNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, roots: Sequence[Tensor]
) -> Iterator[Tensor]:
    """As unroll, for a network whose levels all read the pair at the root, of target features only."""
    attention, former = ChainAttention(), torch.arange(embeddings.shape[1])
    yield network(embeddings, features, rotation, None, attention)
    for level, chains in enumerate(roots, start=1):
        placed, kept = _placed(chains, former, features.device)
        attention.go_on(chains, placed, kept)
        pairs = embeddings[:, placed], features[:, placed]
        yield network(*pairs, rotation[:, placed + level], None, attention, level=level)
        former = chains


def _placed(chains: Tensor, former: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Roots [S] of chains and of those of the pass before, on the host -> the roots [S] and the chains' indices in the
    pass before [S] on the device, by one upload."""
    placed, kept = torch.stack([chains, torch.searchsorted(former, chains)]).to(device)
    return placed, kept


def all_roots(first: int, length: int, depth: int) -> list[Tensor]:
    """roots for `depth` passes: of all chains from position `first` on that end within the `length` positions."""
    return [torch.arange(first, length - d) for d in range(1, depth)]
