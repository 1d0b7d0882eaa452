"""fused.py's layers as one graph for torch.compile (`compile=true`): at the few rows of a round the elementwise
operations cost as much as the matrix products, and are fused into a few kernels. One graph serves all trees and batch
sizes; one-row passes and rows of uneven length have graphs of their own. Each takes a minute to compile."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo import config as dynamo
from torch._inductor import config as inductor
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler

from lantern.engine.cache import TreeView
from lantern.errors import LanternError
from lantern.models.llamagen.fused import flash_attention, precise
from lantern.models.llamagen.transformer import Transformer, with_layers

VARIANTS = 64  # of the graph, one for each set of sizes that are 1; beyond torch's default of 8 it would run eagerly


class CompiledTransformer(nn.Module):
    """A FusedTransformer for passes behind the committed slots of a cache. For its own graphs alone, weights become
    constants, packed for the processor (freezing), and softmax has two passes: the other one gives NaN behind masks
    under AVX2, and no valid C++ without vector instructions."""

    def __init__(self, transformer: Transformer) -> None:
        super().__init__()
        _check_compiler()
        self.layers, self.norm = transformer.layers, transformer.norm
        gate_up = [block.feed_forward.gate_up() for block in self.layers]
        self.gate_up = nn.ParameterList(nn.Parameter(weight, requires_grad=False) for weight in gate_up)
        self.dtype, self.precise = gate_up[0].dtype, precise(gate_up[0])
        unchanging = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}  # weights are constant
        # isolated: another target must not reuse this graph, in which the weights are constants; fullgraph: a part that
        # falls back to eager makes passes slower than without compilation
        self._run = torch.compile(self.graph, fullgraph=True, dynamic=True, options=unchanging, isolate_recompiles=True)

    @inductor.patch(freezing=True, online_softmax=False)
    @dynamo.patch(recompile_limit=VARIANTS)
    def forward(self, x: Tensor, rotary: Tensor, mask: Tensor, cache: TreeView, layers: tuple[int, ...] = ()) -> Tensor:
        """x [B R, T, D] -> features [B R, T, F], the inputs of `layers` behind them; rotary, mask as FusedLayer's."""
        real = torch.view_as_real(rotary).expand(len(x), *[-1] * 5).contiguous()
        entries = cache.store.flatten(0, 1).unbind(0)
        handed_out = [index in layers for index in range(len(self.layers))]  # as numbers they would become symbols
        rows = x.to(self.precise), real, mask.contiguous()
        features, inputs = self._run(*rows, cache.reserved, entries, handed_out)
        return with_layers(features, dict(zip(sorted(layers), inputs, strict=True)), layers)

    def graph(
        self, x: Tensor, rotary: Tensor, mask: Tensor, slots: int | Tensor, entries: Sequence[Tensor],
        handed_out: Sequence[bool],
    ) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
        """x [B R, T, D], rotary [B R, T, 2, 1, Dh / 2, 2] of queries and keys, mask [B R, 1, T, S], slots to write
        [B R, T], or the first slot where all rows share it, entries: keys and values of each layer in turn
        [B R, H, slots, Dh], handed_out: by layer -> features and the inputs of these layers, [B R, T, D] each."""
        inputs: list[Tensor] = []
        parts = zip(self.layers, self.gate_up, entries[::2], entries[1::2], handed_out, strict=True)
        for block, gate_up, keys, values, is_handed_out in parts:
            if is_handed_out:
                inputs.append(x)
            attention = block.attention
            heads = attention.wqkv(self._normed(block.attention_norm, x)).to(self.precise)
            heads = heads.unflatten(-1, (3, attention.num_heads, -1))
            query, key = _rotated(heads[:, :, :2], rotary).unbind(2)
            attended = self._attend(query, _written(keys, key, slots), _written(values, heads[:, :, 2], slots), mask)
            x = x + attention.wo(attended.transpose(1, 2).flatten(2).to(self.dtype))
            gate, up = F.linear(self._normed(block.ffn_norm, x), gate_up).chunk(2, -1)
            x = x + block.feed_forward.w2(F.silu(gate) * up)
        return self._normed(self.norm, x), inputs

    def _normed(self, norm: nn.RMSNorm, x: Tensor) -> Tensor:
        scale = (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
        return (x * scale * norm.weight.to(x.dtype)).to(self.dtype)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        extent = slice(mask.shape[-1])
        if keys.dtype != query.dtype:  # a GPU's cache has half precision, in which scores would be rounded
            return flash_attention(query.transpose(1, 2), keys[:, :, extent], values[:, :, extent], mask)
        scores = query.transpose(1, 2) @ keys[:, :, extent].transpose(-1, -2)
        return (scores + mask).softmax(-1) @ values[:, :, extent]


def _check_compiler() -> None:
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise LanternError("compile=true needs a C++ compiler; install g++, or leave compile out") from error


def _rotated(heads: Tensor, rotary: Tensor) -> Tensor:
    """Rotary embedding, the complex product in real arithmetic: heads [B R, T, 2, H, Dh] -> the same."""
    a, b = heads.unflatten(-1, (-1, 2)).unbind(-1)
    cosine, sine = rotary.unbind(-1)
    return torch.stack([a * cosine - b * sine, a * sine + b * cosine], -1).flatten(-2)


def _written(store: Tensor, fresh: Tensor, slots: int | Tensor) -> Tensor:
    """store [B R, H, slots, Dh] after writing fresh [B R, T, H, Dh] to its slots."""
    if isinstance(slots, Tensor):
        store[torch.arange(len(fresh), device=fresh.device)[:, None], :, slots] = fresh.to(store.dtype)
    else:
        store[:, :, slots : slots + fresh.shape[1]] = fresh.transpose(1, 2)
    return store
