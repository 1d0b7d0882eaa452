"""fused.py's layers as one graph for torch.compile (`compile=true`): what lies between the products costs as much as
they do at the few rows of a round, and becomes a few kernels. The graph serves every tree and batch size; passes over
one row, and rows that stand unevenly, have one of their own. Each takes a minute to make."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor import config as inductor
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler

from lantern.errors import LanternError
from lantern.models.cache import KVCache
from lantern.models.llamagen.fused import precise
from lantern.models.llamagen.transformer import Transformer

VARIANTS = 64  # of the graph, by which sizes are 1; torch makes 8 and then goes on without


class CompiledTransformer(nn.Module):
    """A FusedTransformer for passes over a KVCache."""

    def __init__(self, transformer: Transformer) -> None:
        """Raises LanternError where nothing can be compiled."""
        super().__init__()
        _prepare()
        self.layers, self.norm = transformer.layers, transformer.norm
        parts = [block.feed_forward for block in self.layers]
        gate_up = [torch.cat([part.w1.weight, part.w3.weight]).detach() for part in parts]
        self.gate_up = nn.ParameterList(nn.Parameter(weight, requires_grad=False) for weight in gate_up)
        self.dtype, self.precise = gate_up[0].dtype, precise(gate_up[0])
        unchanging = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}  # weights stay as they are
        # isolated, or another target's pass would find this one's graph, whose weights are constants
        self._run = torch.compile(self.graph, dynamic=True, options=unchanging, isolate_recompiles=True)

    def forward(self, x: Tensor, rotary: Tensor, mask: Tensor, cache: KVCache) -> Tensor:
        """x [B R, T, D] -> features [B R, T, D]; rotary, mask as FusedLayer's."""
        real = torch.view_as_real(rotary).expand(len(x), *[-1] * 5).contiguous()
        entries = cache.store.flatten(0, 1).unbind(0)
        return self._run(x.to(self.precise), real, mask.contiguous(), cache.reserved, entries)

    def graph(self, x: Tensor, rotary: Tensor, mask: Tensor, slots: int | Tensor, entries: Sequence[Tensor]) -> Tensor:
        """x [B R, T, D], rotary [B R, T, 2, 1, Dh / 2, 2] of queries and keys, mask [B R, 1, T, S], slots to write
        [B R, T], or the first of those of all rows, entries: keys and values of each layer in turn [B R, H, slots, Dh]
        -> [B R, T, D]."""
        for block, gate_up, keys, values in zip(self.layers, self.gate_up, entries[::2], entries[1::2], strict=True):
            attention = block.attention
            heads = attention.wqkv(self._normed(block.attention_norm, x)).to(self.precise)
            heads = heads.unflatten(-1, (3, attention.num_heads, -1))
            query, key = _turned(heads[:, :, :2], rotary).unbind(2)
            seen = self._attend(query, _written(keys, key, slots), _written(values, heads[:, :, 2], slots), mask)
            x = x + attention.wo(seen.transpose(1, 2).flatten(2).to(self.dtype))
            gate, up = F.linear(self._normed(block.ffn_norm, x), gate_up).chunk(2, -1)
            x = x + block.feed_forward.w2(F.silu(gate) * up)
        return self._normed(self.norm, x)

    def _normed(self, norm: nn.RMSNorm, x: Tensor) -> Tensor:
        scale = (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
        return (x * scale * norm.weight.to(x.dtype)).to(self.dtype)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        seen = slice(mask.shape[-1])
        scores = query.to(keys.dtype).transpose(1, 2) @ keys[:, :, seen].transpose(-1, -2)
        return (scores + mask).softmax(-1) @ values[:, :, seen]


def _prepare() -> None:
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise LanternError("compile=true needs a C++ compiler; install g++, or leave compile out") from error
    inductor.freezing = True  # weights are constants, and so laid out for the processor
    torch._dynamo.config.recompile_limit = VARIANTS


def _turned(heads: Tensor, rotary: Tensor) -> Tensor:
    """The product of complex numbers, in real ones: heads [B R, T, 2, H, Dh] -> the same."""
    a, b = heads.unflatten(-1, (-1, 2)).unbind(-1)
    cosine, sine = rotary.unbind(-1)
    return torch.stack([a * cosine - b * sine, a * sine + b * cosine], -1).flatten(-2)


def _written(kept: Tensor, fresh: Tensor, slots: int | Tensor) -> Tensor:
    """kept [B R, H, slots, Dh] with fresh [B R, T, H, Dh] in its slots."""
    if isinstance(slots, Tensor):
        kept[torch.arange(len(fresh), device=fresh.device)[:, None], :, slots] = fresh.to(kept.dtype)
    else:
        kept[:, :, slots : slots + fresh.shape[1]] = fresh.transpose(1, 2)
    return kept
