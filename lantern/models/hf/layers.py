"""Changes to the layers of a transformers body: weights rounded to int8, projections of one input fused into one
product, products of a few rows turned, attention of query heads that share key heads, and the inputs of chosen layers
kept."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import PreTrainedModel

IN_LAYER = re.compile(r"\blayers\.\d+\.")  # names of modules
FEW = 2, 3  # rows of a product that MKL is slow at
FUSED = {"self_attn": ("q_proj", "k_proj", "v_proj"), "mlp": ("gate_proj", "up_proj")}


class Int8Linear(nn.Module):
    """A linear layer with weights of 8 bits and a scale for each output, as torchao's Int8WeightOnlyConfig rounds them.
    A product converts them first: half the memory of bfloat16, in more time unless it is compiled."""

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> None:
        """weight [O, I] of int8, scale [O], bias [O]."""
        super().__init__()
        self.weight, self.scale = nn.Parameter(weight, False), nn.Parameter(scale, False)
        self.bias = None if bias is None else nn.Parameter(bias, False)

    @classmethod
    def rounded(cls, layer: nn.Linear) -> "Int8Linear":
        """The layer with its weights w as round(w / scale), where scale is max |w| / 127.5 of an output."""
        weight = layer.weight.detach().float()
        scale = (weight.abs().amax(1) / 127.5).clamp(min=torch.finfo(torch.float32).eps)
        codes = (weight * (1 / scale)[:, None]).round().clamp(-128, 127).to(torch.int8)
        return cls(codes, scale.to(layer.weight.dtype), None if layer.bias is None else layer.bias.detach())

    def forward(self, x: Tensor) -> Tensor:  # [..., I] -> [..., O]
        made = F.linear(x, self.weight.to(x.dtype)) * self.scale
        return made if self.bias is None else made + self.bias


def round_layers(model: nn.Module) -> None:
    """Rounds, in place, the linear layers of a model's decoder layers; embeddings, norms and heads stay as they are."""
    linear = [name for name, part in model.named_modules() if isinstance(part, nn.Linear) and IN_LAYER.search(name)]
    for name in linear:
        model.set_submodule(name, Int8Linear.rounded(model.get_submodule(name)))


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
    is_free = isinstance(projection, nn.Linear | Int8Linear) and projection.bias is None
    return is_free and not getattr(projection, "is_shared", False)


class _Fused(nn.Module):
    def __init__(self, projections: Sequence[nn.Linear | Int8Linear]) -> None:
        super().__init__()
        weight = torch.cat([projection.weight.detach() for projection in projections])
        self.sizes = [len(projection.weight) for projection in projections]
        if isinstance(projections[0], Int8Linear):
            self.whole: nn.Module = Int8Linear(weight, torch.cat([projection.scale for projection in projections]))
        else:
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
    hooks = [body[i].register_forward_pre_hook(partial(_keep, inputs, i)) for i in layers]
    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()


def _keep(inputs: dict[int, Tensor], index: int, layer: nn.Module, given: tuple[Tensor, ...]) -> None:
    inputs[index] = given[0]
