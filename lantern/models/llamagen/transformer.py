"""LlamaGen's transformer (Sun et al., 2406.06525) with the parameter names and arithmetic of the released checkpoints.
Attention masks and rotary factors are arguments. Decoding runs the same weights through fused.py."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn


class CaptionEmbedding(nn.Module):
    """Caption features to prefix embeddings; a learned embedding replaces dropped captions."""

    def __init__(self, dim: int, caption_dim: int, prefix_len: int) -> None:
        super().__init__()
        self.uncond_embedding = nn.Parameter(torch.randn(prefix_len, caption_dim) / caption_dim**0.5)
        fc1, fc2 = nn.Linear(caption_dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.cap_proj = nn.Sequential(OrderedDict(fc1=fc1, gelu=nn.GELU(approximate="tanh"), fc2=fc2))

    def forward(self, captions: Tensor, dropped: Tensor) -> Tensor:  # [B, P, C], [B] bool -> [B, P, D]
        return self.cap_proj(torch.where(dropped[:, None, None], self.uncond_embedding, captions))


class ClassEmbedding(nn.Module):
    """Class labels to one prefix embedding; the last row of the table is the unconditional one."""

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.embedding_table = nn.Embedding(num_classes + 1, dim)

    def forward(self, labels: Tensor, dropped: Tensor) -> Tensor:  # [B], [B] bool -> [B, 1, D]
        return self.embedding_table(torch.where(dropped, self.num_classes, labels))[:, None]


def rotation_table(grid: tuple[int, int], prefix_len: int, head_dim: int, base: float = 10000.0) -> Tensor:
    """[P + L, 2, Dh] as rotation_pairs. Half of a head's angles are proportional to the grid row, half to the column.
    Prefix entries are zero, which makes their queries and keys zero, as in the released code."""
    quarter = head_dim // 4
    frequency = base ** (-torch.arange(quarter, dtype=torch.float64) / quarter)
    row, column = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    angle = torch.cat([row.reshape(-1, 1) * frequency, column.reshape(-1, 1) * frequency], dim=1)  # [L, Dh / 2]
    table = rotation_pairs(angle)
    return torch.cat([table.new_zeros(prefix_len, 2, head_dim), table]).float()


def rotation_pairs(angle: Tensor) -> Tensor:
    """[L, Dh / 2] -> [L, 2, Dh] the cosine and the signed sine of each position, for interleaved pairs (2i, 2i + 1)."""
    sine = torch.stack([-angle.sin(), angle.sin()], dim=2).flatten(1)
    return torch.stack([angle.cos().repeat_interleave(2, dim=1), sine], dim=1)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:  # [B, T, H, Dh], [B or 1, T, 2, Dh] -> [B, T, H, Dh]
    rotation = rotation.to(x.dtype)  # under autocast x has a narrower dtype than the table
    swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return torch.addcmul(x * rotation[:, :, None, 0], swapped, rotation[:, :, None, 1])


class KeyValues(Protocol):
    """Attention over keys and values of tokens read before, such as those of a drafter's earlier passes."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor: ...  # [B, H, T, Dh] each, and kept


class HeadNorm(nn.Module):
    """Chameleon's LayerNorm of queries and keys (2405.09818): each head has gains and shifts of its own."""

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, num_heads, head_dim))  # of queries, of keys
        self.bias = nn.Parameter(torch.zeros(2, num_heads, head_dim))

    def forward(self, query_key: Tensor) -> Tensor:  # [..., 2, H, Dh] -> [..., 2, H, Dh]
        return F.layer_norm(query_key, query_key.shape[-1:], eps=1e-5) * self.weight + self.bias


class Attention(nn.Module):
    """Multi-head self-attention with rotary embeddings; normed: queries and keys by HeadNorm."""

    def __init__(self, dim: int, num_heads: int, normed: bool = False) -> None:
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise ValueError(f"num_heads={num_heads} does not divide dim={dim}")
        self.num_heads = num_heads
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.head_norm = HeadNorm(num_heads, dim // num_heads) if normed else nn.Identity()

    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor | None, cache: KeyValues | None = None) -> Tensor:
        """x [B, T, D]; mask broadcasts to [B, 1, T, T], None is causal; cache: attends in place of a mask."""
        heads = rearrange(self.wqkv(x), "b t (n h d) -> b t n h d", n=3, h=self.num_heads)
        query_key, value = self.head_norm(heads[:, :, :2]).flatten(2, 3), heads[:, :, 2]
        query, key = rotate(query_key, rotation).chunk(2, dim=2)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        if cache is not None:
            out = cache.attend(query, key, value)
        else:
            out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
        return self.wo(rearrange(out, "b h t d -> b t (h d)"))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(dim, hidden_dim, bias=False)
        self.w3 = nn.Linear(dim, hidden_dim, bias=False)
        self.w2 = nn.Linear(hidden_dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))

    def gate_up(self) -> Tensor:
        """The weights of w1 and w3 as one [2 F, D], of which both become views: no copy is held."""
        gate, up = self.w1.weight, self.w3.weight
        storages = [part.untyped_storage().data_ptr() for part in (gate, up)]  # a GPU may put two together
        if gate.is_meta or len(set(storages)) > 1 or up.storage_offset() != gate.storage_offset() + gate.numel():
            with torch.inference_mode(gate.is_inference()):  # whatever mode decoding is in: training may read them
                joined = torch.cat([gate.data, up.data])
                gate.data, up.data = joined.chunk(2)
            return joined
        return gate.data.as_strided((len(gate) + len(up), gate.shape[1]), (gate.shape[1], 1))


def feed_forward_dim(dim: int, multiple_of: int) -> int:
    """8/3 of the width, rounded up to a multiple."""
    return -(-int(8 * dim / 3) // multiple_of) * multiple_of


class Block(nn.Module):
    """A pre-norm decoder layer."""

    def __init__(self, dim: int, num_heads: int, hidden_dim: int, eps: float) -> None:
        super().__init__()
        self.attention = Attention(dim, num_heads)
        self.feed_forward = FeedForward(dim, hidden_dim)
        self.attention_norm = nn.RMSNorm(dim, eps=eps)
        self.ffn_norm = nn.RMSNorm(dim, eps=eps)

    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation, mask)
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """Prefix embeddings (a class or a caption) and image tokens in, features after the final norm out."""

    def __init__(
        self, dim: int, num_layers: int, num_heads: int, vocab_size: int, grid: tuple[int, int],
        caption_dim: int | None = None, prefix_len: int = 1, num_classes: int | None = None, multiple_of: int = 256,
        eps: float = 1e-5, rope_base: float = 10000.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.dim, self.num_heads, self.vocab_size = dim, num_heads, vocab_size
        self.grid, self.prefix_len, self.num_tokens = tuple(grid), prefix_len, grid[0] * grid[1]
        if num_classes is not None:
            self.cls_embedding = ClassEmbedding(dim, num_classes)
        else:
            self.cls_embedding = CaptionEmbedding(dim, caption_dim, prefix_len)
        self.tok_embeddings = nn.Embedding(vocab_size, dim)
        hidden_dim = feed_forward_dim(dim, multiple_of)
        self.layers = nn.ModuleList(Block(dim, num_heads, hidden_dim, eps) for _ in range(num_layers))
        self.norm = nn.RMSNorm(dim, eps=eps)
        self.output = nn.Linear(dim, vocab_size, bias=False)
        table = rotation_table(self.grid, prefix_len, dim // num_heads, rope_base)
        self.register_buffer("rotation", table, persistent=False)  # [P + L, 2, Dh]
        self._initialise()

    def _initialise(self) -> None:
        """Normal(0, 0.02), residual outputs scaled down with depth (GPT-2)."""
        for name, weight in self.named_parameters():
            if weight.dim() == 2 and "uncond" not in name:
                scale = 0.02 / (2 * len(self.layers)) ** 0.5 if name.endswith(("wo.weight", "w2.weight")) else 0.02
                nn.init.normal_(weight, std=scale)

    def body(self, x: Tensor, rotation: Tensor, mask: Tensor | None, layers: Sequence[int] = ()) -> Tensor:
        """x [B, T, D] -> features [B, T, F] after the final norm, then inputs of `layers`: F = (1 + len(layers)) D."""
        inputs: dict[int, Tensor] = {}
        for index, layer in enumerate(self.layers):
            if index in layers:
                inputs[index] = x
            x = layer(x, rotation, mask)
        return with_layers(self.norm(x), inputs, layers)

    def forward(self, tokens: Tensor, condition: Tensor, visible: Tensor, dropped: Tensor) -> Tensor:
        """Teacher forcing: features [B, L, D], position t predicting token t; `output` maps them to logits.
        tokens [B, L]; condition [B, P, C] caption features or [B] labels; visible [B, P] false at caption pads;
        dropped [B] true where the condition is replaced by the unconditional one."""
        prefix = self.cls_embedding(condition, dropped)
        image = self.tok_embeddings(tokens[:, :-1])
        x = torch.cat([prefix.to(image.dtype), image], dim=1)  # the residual stream has the weights' dtype
        mask = causal_mask(visible, x.shape[1])
        return self.body(x, self.rotation[None, : x.shape[1]], mask)[:, self.prefix_len - 1 :]


def with_layers(features: Tensor, inputs: Mapping[int, Tensor], layers: Sequence[int]) -> Tensor:
    """features [..., D] with the inputs [..., D] of `layers`, in this order, behind them -> [..., F]."""
    return torch.cat([features, *(inputs[i].to(features.dtype) for i in layers)], -1) if layers else features


def causal_mask(visible: Tensor, length: int) -> Tensor:
    """[B, 1, T, T] bool: causal, each caption pad visible only to itself. visible [B, P]."""
    keys = F.pad(visible, (0, length - visible.shape[1]), value=True)
    causal = torch.ones(length, length, dtype=torch.bool, device=visible.device).tril()
    own = torch.eye(length, dtype=torch.bool, device=visible.device)
    return ((causal & keys[:, None]) | own)[:, None]
