"""Multi-step training of a drafter on its own features, at all positions in parallel (HASS, 2408.15766; EAGLE-3's
training-time test). Pass d stands for depth d: a chain's token there reads the output of pass d - 1, and attends to the
committed tokens and to the chain's own."""

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lantern.drafters.eagle.network import EagleNetwork

CHAINS_AT_ONCE = {"cpu": 128}  # chains whose scores exist at once; scores are recomputed for the gradient
MANY_CHAINS = 1024  # at once on other devices, where a block is a dozen launches
Unroll = Callable[..., Iterator[Tensor]]  # the passes of a drafter over the positions of images, as `unroll`


def unroll(
    network: EagleNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, roots: Sequence[Tensor],
    fed_back: Callable[[Tensor], Tensor] = lambda outputs: outputs,
) -> Iterator[Tensor]:  # fmt: skip
    """embeddings [B, T, D] of tokens, features [B, T, D] of the positions before them -> outputs of the first pass at
    all positions [B, T, D], then of each later pass d at the positions roots + d [B, S, D].

    roots: for each later pass the positions [S] of its chains' roots: ascending, on the host, a subset of the
    previous pass's; fed_back: outputs of a pass -> the features that the next one reads.
    """
    attentions = [ChainAttention() for _ in range(network.num_layers)]
    former = torch.arange(embeddings.shape[1])
    yield (outputs := network(embeddings, features, rotation, None, attentions))
    for d, chains in enumerate(roots, start=1):
        for attention in attentions:
            placed, kept = attention.start_pass(chains, former)
        own, at = fed_back(outputs)[:, kept].to(features.dtype), placed + d
        yield (outputs := network(embeddings[:, at], own, rotation[:, at], None, attentions))
        former = chains


def detached_unroll(
    network: EagleNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, roots: Sequence[Tensor]
) -> Iterator[Tensor]:
    """As unroll, without gradient through the features that a pass reads (HASS)."""
    return unroll(network, embeddings, features, rotation, roots, Tensor.detach)


def all_roots(first: int, length: int, depth: int) -> list[Tensor]:
    """roots for `depth` passes: of all chains from position `first` on that end within the `length` positions."""
    return [torch.arange(first, length - d) for d in range(1, depth)]


class ChainAttention:
    """Implements KeyValues. The first pass reads all positions and is causal. In a later pass a chain attends to the
    first pass up to its root (the committed tokens) and to one key of each later pass (its own drafted tokens)."""

    def __init__(self) -> None:
        self._first: tuple[Tensor, ...] = ()  # keys and values [B, H, T, Dh]
        self._own: list[tuple[Tensor, Tensor]] = []  # of the later passes [B, H, S, Dh]

    def start_pass(self, roots: Tensor, former: Tensor) -> tuple[Tensor, Tensor]:
        """Call before a later pass. roots: positions [S] of its chains' roots, ascending; former: the previous pass's;
        both on the host -> roots [S] and the chains' indices in the previous pass [S], on the device by one upload."""
        device = self._first[0].device
        self._roots = roots
        self._placed, kept = torch.stack([roots, torch.searchsorted(former, roots)]).to(device)
        self._own = [(key[:, :, kept], value[:, :, kept]) for key, value in self._own]
        return self._placed, kept

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:  # [B, H, T or S, Dh] each
        if not self._first:
            self._first = key, value
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        self._own.append((key, value))
        return torch.cat(list(self._blocks(query)), dim=2)

    def _blocks(self, query: Tensor) -> Iterator[Tensor]:
        keys, values = self._first
        own_keys, own_values = (torch.stack(part, dim=3) for part in zip(*self._own, strict=True))  # [B, H, S, J, Dh]
        at_once = CHAINS_AT_ONCE.get(query.device.type, MANY_CHAINS)
        for start in range(0, query.shape[2], at_once):
            rows = slice(start, start + at_once)
            seen = slice(int(self._roots[rows][-1]) + 1)
            own = query[:, :, rows], own_keys[:, :, rows], own_values[:, :, rows]
            given = *own, keys[:, :, seen], values[:, :, seen], self._placed[rows]
            yield checkpoint(chain_attention, *given, use_reentrant=False, preserve_rng_state=False)


def chain_attention(
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
