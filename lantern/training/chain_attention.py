"""Attention of chains of drafted tokens in training, all at once: pass by pass, each chain having one token a pass."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHAINS_AT_ONCE = {"cpu": 128}  # whose scores exist at once; they are computed again for the gradient
MANY = 1024  # on other devices, where a block is a dozen launches


class ChainAttention:
    """Implements KeyValues. The first pass reads all positions and is causal. In a later pass a chain attends to the
    first one up to its root, the committed tokens, and to one key of each later pass, its own drafted tokens."""

    def __init__(self) -> None:
        self._first: tuple[Tensor, ...] = ()  # keys and values [B, H, T, Dh]
        self._own: list[tuple[Tensor, Tensor]] = []  # of the later passes [B, H, S, Dh]

    def go_on(self, roots: Tensor, placed: Tensor, kept: Tensor) -> None:
        """Before a later pass: the positions [S] of its chains' roots, ascending, on the host and on the device, and
        there the indices [S] of these chains in the pass before."""
        self._roots, self._placed = roots, placed
        self._own = [(key[:, :, kept], value[:, :, kept]) for key, value in self._own]

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:  # [B, H, T or S, Dh] each
        if not self._first:
            self._first = key, value
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        self._own.append((key, value))
        return torch.cat(list(self._blocks(query)), dim=2)

    def _blocks(self, query: Tensor) -> Iterator[Tensor]:
        keys, values = self._first
        own_keys, own_values = (torch.stack(part, dim=3) for part in zip(*self._own, strict=True))  # [B, H, S, J, Dh]
        at_once = CHAINS_AT_ONCE.get(query.device.type, MANY)
        for start in range(0, query.shape[2], at_once):
            rows = slice(start, start + at_once)
            seen = slice(int(self._roots[rows][-1]) + 1)
            own = query[:, :, rows], own_keys[:, :, rows], own_values[:, :, rows]
            committed = keys[:, :, seen], values[:, :, seen]
            yield checkpoint(
                attended, *own, *committed, self._placed[rows], use_reentrant=False, preserve_rng_state=False
            )


def attended(
    query: Tensor, own_keys: Tensor, own_values: Tensor, keys: Tensor, values: Tensor, roots: Tensor
) -> Tensor:  # fmt: skip
    """query [B, H, S, Dh] of chains with roots [S], their own keys and values [B, H, S, J, Dh], keys and values
    [B, H, T, Dh] of the first pass -> [B, H, S, Dh]."""
    query, count = query * query.shape[-1] ** -0.5, keys.shape[2]
    behind = torch.arange(count, device=keys.device) > roots[:, None]  # [S, T]
    scores = (query @ keys.transpose(-1, -2)).masked_fill(behind, -torch.inf)
    own = torch.linalg.vecdot(query[..., None, :], own_keys)  # [B, H, S, J]
    committed, drafted = torch.cat([scores, own], dim=-1).softmax(-1).tensor_split([count], dim=-1)
    return committed @ values + (drafted[..., None] * own_values).sum(-2)
