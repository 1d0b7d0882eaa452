"""Multi-step training of a drafter on its own features, at all positions in parallel (HASS, 2408.15766; EAGLE-3's
training-time test). Pass d stands for depth d: it reads the outputs of pass d - 1 under the attention mask of a chain
of d drafted tokens."""

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.parallel_network import ParallelNetwork


class Unroll(Protocol):
    """The passes of a drafter over the positions of images: see unroll."""

    def __call__(
        self, network: nn.Module, embeddings: Tensor, features: Tensor, rotation: Tensor, depth: int
    ) -> Iterator[Tensor]: ...


class PassCache:
    """Keys and values of all passes so far, concatenated."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:  # [B, T, H, Dh] -> [B, d T, H, Dh]
        """Appends those of a pass and returns all."""
        self.keys.append(key)
        self.values.append(value)
        return torch.cat(self.keys, dim=1), torch.cat(self.values, dim=1)


def pass_mask(length: int, depth: int, device: torch.device) -> Tensor:
    """[1, 1, T, depth T] bool: position t of pass `depth` attends to the first pass up to t - depth + 1, the committed
    tokens, and to one position of each later pass, the drafted chain."""
    rows = torch.arange(length, device=device)
    distance = rows[:, None] - rows
    committed = distance >= rows.clamp(max=depth - 1)[:, None]  # t < depth - 1 attends to position 0, and is unused
    drafted = [distance == depth - later for later in range(2, depth + 1)]
    return torch.cat([committed, *drafted], dim=1)[None, None]


def unroll(
    network: EagleNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, depth: int
) -> Iterator[Tensor]:
    """embeddings [B, T, D] of tokens, features [B, T, D] of the positions before them -> outputs [B, T, D] of each
    pass.

    Position t of pass d (from 0) is valid for t >= d.
    """
    return _chains(network, embeddings, features, rotation, depth, lambda outputs: outputs)


def detached_unroll(
    network: EagleNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, depth: int
) -> Iterator[Tensor]:
    """As unroll, without gradient through the features that a pass reads (HASS)."""
    return _chains(network, embeddings, features, rotation, depth, Tensor.detach)


def _chains(
    network: EagleNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, depth: int,
    fed_back: Callable[[Tensor], Tensor],
) -> Iterator[Tensor]:  # fmt: skip
    cache = PassCache()
    for d in range(1, depth + 1):
        outputs = network(embeddings, features, rotation, pass_mask(embeddings.shape[1], d, features.device), cache)
        yield outputs
        features = torch.cat([features[:, :1], fed_back(outputs)[:, :-1].to(features.dtype)], dim=1)


def parallel_passes(
    network: ParallelNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, depth: int
) -> Iterator[Tensor]:
    """As unroll, for a network whose pass d (from 0) reads the pair d positions earlier, of target features only."""
    cache = PassCache()
    for d in range(depth):
        mask = pass_mask(embeddings.shape[1], d + 1, features.device)
        yield network(embeddings.roll(d, 1), features.roll(d, 1), rotation, mask, cache, level=d)
