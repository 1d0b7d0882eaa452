"""The unroll over whole passes, every later key of all chains masked but one: the slow twin of ChainAttention."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor


class MaskedPasses:
    """Keys and values of all passes so far, concatenated; implements KeyValues."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.keys.append(key)
        self.values.append(value)
        mask = pass_mask(query.shape[2], len(self.keys))
        keys, values = torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)


def pass_mask(length: int, depth: int) -> Tensor:
    """[1, 1, T, depth T] bool: position t of pass `depth` attends to the first pass up to t - depth + 1, the committed
    tokens, and to one position of each later pass, the drafted chain."""
    rows = torch.arange(length)
    distance = rows[:, None] - rows
    committed = distance >= rows.clamp(max=depth - 1)[:, None]  # t < depth - 1 attends to position 0, and is unused
    drafted = [distance == depth - later for later in range(2, depth + 1)]
    return torch.cat([committed, *drafted], dim=1)[None, None]


def masked_unroll(network, embeddings: Tensor, features: Tensor, rotation: Tensor, depth: int) -> Iterator[Tensor]:
    """Outputs [B, T, D] of each pass; position t of pass d is valid for t >= d."""
    passes = MaskedPasses()
    for _ in range(depth):
        yield (outputs := network(embeddings, features, rotation, None, passes))
        features = torch.cat([features[:, :1], outputs[:, :-1]], dim=1)


def masked_levels(network, embeddings: Tensor, features: Tensor, rotation: Tensor, depth: int) -> Iterator[Tensor]:
    """The same for a parallel drafter, whose pass d reads the pair d positions earlier."""
    passes = MaskedPasses()
    for d in range(depth):
        yield network(embeddings.roll(d, 1), features.roll(d, 1), rotation, None, passes, level=d)
