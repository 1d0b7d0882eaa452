"""LlamaGen's layers as decoding runs them: one product for queries, keys and values, one for gate and up, few small
operations between them, because at the few tokens of a round those cost as much as the products. The arithmetic is that
of transformer.py, which training uses and the tests compare with; the residual stream is float32 at least."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lantern.models.llamagen.transformer import Transformer, with_layers

MAX_TRANSPOSED_TOKENS, MIN_TRANSPOSED_BATCH = 2, 5  # most tokens and fewest batch rows for key @ query
PACKED_ROWS = 16  # the batch size that oneDNN packs for; any other works, too


class KVView(Protocol):
    """Stores a layer's keys and values and returns those that are attended to."""

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the new tokens [B R, H, T, Dh] -> those they may attend to [B R, H, S, Dh]."""


def precise(weight: Tensor) -> torch.dtype:
    """The dtype of the residual stream and of rotary factors: float32 at least."""
    return torch.promote_types(weight.dtype, torch.float32)


def cache_dtype(weight: Tensor) -> torch.dtype:
    """The dtype of keys and values with the fastest attention: float32 or more on a CPU, else the weights'."""
    return precise(weight) if weight.device.type == "cpu" else weight.dtype


def explicit_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """On a CPU two batched float32 products beat the flash kernel, 5 times at one row. query [B R, H, T, Dh], scaled
    already; key, value [B R, H, S, Dh]; mask [B R, 1, T, S] additive -> [B R, H, T, Dh]."""
    if query.shape[2] <= MAX_TRANSPOSED_TOKENS and len(query) >= MIN_TRANSPOSED_BATCH:  # bound by reading keys in order
        scores = (key @ query.contiguous().transpose(-1, -2)).transpose(-1, -2)
    else:
        scores = query @ key.transpose(-1, -2)
    return scores.add_(mask).softmax(-1) @ value


def flash_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """torch's fused kernel; shapes as explicit_attention's."""
    return F.scaled_dot_product_attention(query.to(key.dtype), key, value, attn_mask=mask, scale=1.0)


class Norm:
    """RMSNorm in float32 at least, with outputs in the weights' dtype."""

    def __init__(self, norm: nn.RMSNorm) -> None:
        size, weight = norm.normalized_shape[0], norm.weight
        self.gain = weight.to(precise(weight)) * size**0.5
        self.floor = torch.tensor(size * norm.eps, dtype=self.gain.dtype, device=weight.device).sqrt()
        self.dtype = weight.dtype

    def __call__(self, x: Tensor) -> Tensor:  # [M, D] -> [M, D]
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x / torch.hypot(length, self.floor)).mul_(self.gain).to(self.dtype)


class FusedLayer:
    """A decoder layer: a Block, or what has its parts. Its attention_norm is None without a norm there (EAGLE's)."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.attention, layer.feed_forward
        self.num_heads = attention.num_heads
        self.dtype = attention.wqkv.weight.dtype
        self.qkv, self.out, self.down = (linear(part.weight) for part in (attention.wqkv, attention.wo, mlp.w2))
        self.gate_up = linear(mlp.gate_up())
        self.norm = Norm(layer.attention_norm) if layer.attention_norm is not None else lambda x: x.to(self.dtype)
        self.ffn_norm = Norm(layer.ffn_norm)
        self.head_norm = attention.head_norm
        self.attend = explicit_attention if attention.wo.weight.device.type == "cpu" else flash_attention

    def __call__(self, x: Tensor, rotary: Tensor, mask: Tensor, view: KVView, index: int = 0) -> Tensor:
        """x [B R T, D], rotary [B R or 1, T, 2, 1, Dh / 2] of queries and keys, mask [B R, 1, T, S] -> [B R T, D]."""
        batch, length = mask.shape[0], mask.shape[2]
        heads = self.qkv(self.norm(x)).to(x.dtype).view(batch, length, 3, self.num_heads, -1)
        pairs = torch.view_as_complex(self.head_norm(heads[:, :, :2]).unflatten(-1, (-1, 2)))
        query, key = torch.view_as_real(pairs * rotary).flatten(-2).transpose(1, 3).unbind(2)  # [B R, H, T, Dh] each
        attended = self.attend(query, *view.update(index, key, heads[:, :, 2].transpose(1, 2)), mask)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape).to(self.dtype))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, dim=-1)
        return x.add_(self.down(F.silu(gate).mul_(up)))


class FusedTransformer:
    """The body of a Transformer: embeddings in, features after the final norm out; see Transformer.body."""

    def __init__(self, transformer: Transformer) -> None:
        self.layers = [FusedLayer(block) for block in transformer.layers]
        self.norm = Norm(transformer.norm)

    def __call__(self, x: Tensor, rotary: Tensor, mask: Tensor, view: KVView, layers: Sequence[int] = ()) -> Tensor:
        """x [B R, T, D] -> features [B R, T, F], the inputs of `layers` behind them; see FusedLayer for the others."""
        rows, inputs = x.to(self.norm.gain.dtype).flatten(0, 1), dict[int, Tensor]()
        for index, layer in enumerate(self.layers):
            if index in layers:
                inputs[index] = rows
            rows = layer(rows, rotary, mask, view, index)
        return with_layers(self.norm(rows), inputs, layers).unflatten(0, x.shape[:2])


def rotary_table(rotation: Tensor, dtype: torch.dtype) -> Tensor:
    """[P + L, 2, Dh] cosines and signed sines -> [P + L, 2, 1, Dh / 2] complex factors of queries and keys; those of
    queries carry attention's 1 / sqrt(Dh)."""
    cosine, sine = rotation.to(dtype)[..., 1::2].unbind(1)
    rotary = torch.complex(cosine, sine)
    return torch.stack([rotary * rotation.shape[-1] ** -0.5, rotary], dim=1)[:, :, None]


def linear(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """[M, I] -> [M, O] for a weight [O, I], packed by oneDNN: 1.5 to 3 times as fast at the few rows of a round, and a
    row's result does not depend on the other rows. The packed copy doubles the weights' memory. F.linear off the CPU,
    where torch cannot pack, and under autograd."""
    if not _can_pack(weight):
        return partial(F.linear, weight=weight)
    packed_weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS)
    product = torch.ops.mkldnn._linear_pointwise.default

    def packed(x: Tensor) -> Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            return F.linear(x, weight)
        return product(x, packed_weight, None, "none", [], "")

    return packed


def _can_pack(weight: Tensor) -> bool:
    """Whether oneDNN packs this weight on this processor: of bfloat16 only with AVX-512 or a substitute."""
    ops = ("mkldnn::_reorder_linear_weight", "mkldnn::_linear_pointwise")
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return False
    if not (torch.backends.mkldnn.is_available() and all(map(torch._C._dispatch_has_kernel, ops))):
        return False
    return weight.dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
