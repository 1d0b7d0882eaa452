"""Changes to the layers of a transformers body: projections of one input fused into one product, products of a few rows
turned, attention of query heads that share key heads, and the inputs of chosen layers kept."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import PreTrainedModel

from lantern.errors import LanternError

FEW = 2, 3  # rows of a product that MKL is slow at
FUSED = {"self_attn": ("q_proj", "k_proj", "v_proj"), "mlp": ("gate_proj", "up_proj")}


class FewRowsLinear(nn.Linear):
    """A linear layer that multiplies a few rows the other way round, W x^T: with MKL in float32 two rows, those of a
    guided image, take a quarter to half the time of x W^T; more than three rows, and bfloat16, do not."""

    @classmethod
    def of(cls, layer: nn.Linear) -> Self:
        """One over the weights of another layer."""
        made = cls(layer.in_features, layer.out_features, device="meta")
        made.weight, made.bias = layer.weight, layer.bias
        return made

    def forward(self, x: Tensor) -> Tensor:  # [..., I] -> [..., O]
        rows, weight = x.shape[:-1].numel(), self.weight
        if rows not in FEW or weight.dtype != torch.float32 or weight.device.type != "cpu":
            return super().forward(x)
        made = (weight @ x.reshape(rows, -1).T).T.contiguous().view(*x.shape[:-1], -1)
        return made if self.bias is None else made + self.bias


def fuse_projections(layers: Sequence[nn.Module]) -> None:
    """In place, in every decoder layer, without a second copy of the weights. Projections with a bias stay as they
    are, and so do those whose weights another model shares. All linear layers become FewRowsLinear."""
    for layer in layers:
        for owner, names in FUSED.items():
            part = getattr(layer, owner)
            projections = [getattr(part, name, None) for name in names]  # some bodies have them fused
            if all(_fits(projection) for projection in projections):
                fused = _Fused(projections)
                for index, name in enumerate(names):
                    setattr(part, name, _Part(fused, index))
        for name, module in list(layer.named_modules()):
            if type(module) is nn.Linear:
                layer.set_submodule(name, FewRowsLinear.of(module))


def _fits(projection: nn.Module | None) -> bool:
    is_free = isinstance(projection, nn.Linear) and projection.bias is None
    return is_free and not getattr(projection, "is_shared", False)


class _Fused(nn.Module):
    def __init__(self, projections: Sequence[nn.Linear]) -> None:
        super().__init__()
        weight = torch.cat([projection.weight.detach() for projection in projections])
        self.sizes = [len(projection.weight) for projection in projections]
        self.whole = nn.Linear(*weight.shape[::-1], bias=False, device="meta")  # without weights of its own
        self.whole.weight = nn.Parameter(weight, False)
        self._read: Tensor | None = None

    def part(self, index: int, x: Tensor) -> Tensor:
        """x [..., I] -> [..., O] of the projection with this index. The first call computes all of them."""
        if x is not self._read:
            self._parts, self._read = self.whole(x).split(self.sizes, -1), x
        part = self._parts[index]
        if index == len(self.sizes) - 1:
            self._parts, self._read = (), None
        return part


class _Part(nn.Module):
    def __init__(self, fused: _Fused, index: int) -> None:
        super().__init__()
        self.fused, self.index = fused, index

    def forward(self, x: Tensor) -> Tensor:
        return self.fused.part(self.index, x)


NAME = "lantern_grouped"
LONGEST = 1024  # tokens of a pass: of more, the mask's copies outweigh those of keys and values


def grouped_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, **given: object,
) -> tuple[Tensor, None]:  # fmt: skip
    """With a mask, transformers copies keys and values for every query head as soon as a pass has two tokens, which
    moves as many bytes as the weights for a tree over a long image. Here the query heads of a key head become rows of
    one product. query [B, H, T, D]; key, value [B, G, S, D]; mask [B, 1, T, S] additive -> [B, T, H, D]."""
    groups, length = query.shape[1] // key.shape[1], query.shape[2]
    if attention_mask is None or length > LONGEST:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **given)
    packed = query.reshape(len(query), key.shape[1], groups * length, -1)  # heads that share a key head are neighbours
    mask = attention_mask.repeat(1, 1, groups, 1)
    found = F.scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=scaling)
    return found.reshape(query.shape).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


def share_keys(body: PreTrainedModel) -> None:
    """Gives the model this attention, if its query heads share key heads."""
    if body.config.num_attention_heads > body.config.num_key_value_heads:
        body.set_attn_implementation(NAME)


@contextmanager
def kept_inputs(body: nn.ModuleList, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """By layer the input [B R, T, D] of the last forward within the context."""
    inputs: dict[int, Tensor] = {}
    hooks = [body[i].register_forward_pre_hook(lambda _, given, i=i: inputs.update({i: given[0]})) for i in layers]
    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()


def weight_of(part: nn.Linear | nn.Embedding) -> Tensor:
    """Of a head or an embedding, if it is all that the part computes with."""
    if type(part) not in (nn.Linear, nn.Embedding):
        raise LanternError(
            f"codes are read or predicted by {type(part)}, which may do more than its weight: merge adapters, quantise "
            "layers alone; for a body that scales its embeddings write a Target"
        )
    return part.weight
