"""Memory that a setting needs, from shapes on the meta device: python evaluate.py model=… dry_run=true. No file of the
model is read, so that it can be run before any is downloaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import nn

from lantern.models.llamagen.fused import precise
from lantern.models.llamagen.transformer import Transformer
from lantern.pipeline import missing_arguments
from lantern.runtime.hardware import is_bf16_fast
from lantern.runtime.memory import table_bytes
from lantern.tuning.auto import AutoTree, shapes_for
from lantern.types import Drafter, Target, TreePolicy

PARTS = {
    "transformer": "target",
    "vocabulary": "codes and head",
    "conditioner": "text encoder",
    "tokenizer": "image tokenizer",
}


@dataclass(frozen=True)
class Estimate:
    """Bytes by part. `caches`: by images at once and image tokens so far."""

    weights: dict[str, int]
    laid_out: int  # copies of the target's weights in the layout of the CPU's matrix products
    drafter: int  # an EAGLE layer of the target's width, with its cache
    laws: int
    recorded: int  # what a GPU's recorded passes read and write
    caches: dict[tuple[int, int], int]
    num_tokens: int

    def total(self, batch_size: int) -> int:
        """Bytes of a batch with all its tokens."""
        cache = self.caches[batch_size, self.num_tokens]
        return sum(self.weights.values()) + self.laid_out + self.drafter + self.laws + self.recorded + cache

    def table(self, available: int | None) -> str:
        """Aligned text for the terminal; available: free bytes on the device."""
        batch_size = max(images for images, _ in self.caches)
        rows = [(f"weights, {name}", size) for name, size in self.weights.items()]
        rows += [("weights, laid out for decoding", self.laid_out)] if self.laid_out else []
        rows += [(f"keys and values, B = {b}, {n} of {self.num_tokens} tokens", s) for (b, n), s in self.caches.items()]
        rows += [(f"drafter: weights and cache, B = {batch_size}", self.drafter)] if self.drafter else []
        rows += [(f"laws of a round, B = {batch_size}", self.laws)]
        rows += [(f"recorded passes, B = {batch_size}", self.recorded)] if self.recorded else []
        rows += [(f"all, B = {batch_size}", self.total(batch_size))]
        rows += [("free on this device", available)] if available is not None else []
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}}  {size / 2**30:8.2f} GiB" for name, size in rows)


class Drafted(NamedTuple):
    """The largest tree of a round."""

    num_nodes: int = 1  # the root included
    depth: int = 0


def drafted(drafter: Drafter | partial, tree: TreePolicy | AutoTree) -> Drafted:
    """The largest tree of a config group's drafter, before anything is loaded; of tree=auto the largest that the search
    may decode with."""
    if not isinstance(drafter, partial):
        return Drafted(drafter.num_nodes, drafter.depth)
    parameters = frozenset(signature(drafter.func).parameters)
    shapes = shapes_for(parameters) if isinstance(tree, AutoTree) else []
    has_tree = "tree" in missing_arguments(drafter)
    choices = [drafter.keywords | shape.settings for shape in shapes] or [
        drafter.keywords | ({"tree": tree} if has_tree else {})
    ]
    sizes = [_drafted_with(settings) for settings in choices]
    return Drafted(max(size.num_nodes for size in sizes), max(size.depth for size in sizes))


def _drafted_with(settings: Mapping[str, Any]) -> Drafted:
    """settings: of a drafter, its tree and window among them."""
    alternatives = settings.get("levels", 0) * (settings.get("width", 1) - 1)
    length, beside = settings.get("length", 0), settings.get("branches", 0) + alternatives
    tree = settings.get("tree")
    nodes, depth = (tree.num_nodes, tree.depth) if tree else Drafted()
    return Drafted(nodes + length + beside, max(length, depth))


def estimate(
    target: Target, trees: Drafted, drafts: bool, batch_sizes: Sequence[int], device: torch.device
) -> Estimate:
    """target: built on the meta device; drafts: whether an EAGLE layer is loaded beside it; device: of the run."""
    weights = {
        name: nbytes(part)
        for attribute, name in PARTS.items()
        if (part := getattr(target, attribute, None)) is not None
    }
    weights = {name: size for name, size in weights.items() if size}
    largest = max(batch_sizes)
    widening = _widening(target, device) if _is_llamagen(target) else 1
    caches = {}
    for images in sorted(set(batch_sizes)):
        target.allocate(images, trees.num_nodes)
        whole, slots = target.cache.store.nbytes * widening, target.cache.slots
        for tokens in (0, target.num_tokens // 2, target.num_tokens):
            caches[images, tokens] = whole * (slots - target.num_tokens + tokens) // slots
    return Estimate(
        weights,
        laid_out_bytes(target, device),
        drafter_bytes(target, trees.num_nodes, largest, device) if drafts else 0,
        largest * table_bytes(target.vocab_size, *trees),
        largest * target.recorded_bytes(trees.num_nodes) if device.type == "cuda" else 0,
        caches,
        target.num_tokens,
    )


def nbytes(part: object) -> int:
    """Of a module's parameters and buffers, or of an object's own tensors."""
    tensors = (*part.parameters(), *part.buffers()) if isinstance(part, nn.Module) else vars(part).values()
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor))


def laid_out_bytes(target: Target, device: torch.device) -> int:
    """Copies of weights, packed for models/onednn_linear.py on a CPU; bodies of transformers have none."""
    if not _is_llamagen(target) or device.type != "cpu":
        return 0
    return sum(part.weight.nbytes for part in target.transformer.modules() if isinstance(part, nn.Linear))


def _is_llamagen(target: Target) -> bool:
    return isinstance(target.transformer, Transformer)


def _widening(target: Target, device: torch.device) -> int:
    """Item size of keys and values over that of the weights: on a CPU the caches of LlamaGen's layers are float32."""
    weight = target.embed_weight
    return precise(weight).itemsize // weight.element_size() if device.type == "cpu" else 1


def drafter_bytes(target: Target, num_nodes: int, batch_size: int, device: torch.device) -> int:
    """fc [2 D -> D], a decoder layer like the target's, the table of embeddings through fc, keys and values."""
    vocab_size, dim = target.embed_weight.shape
    item = target.embed_weight.element_size()
    slots = target.prefix_len + target.num_tokens + 2 * num_nodes
    cache = 2 * batch_size * target.guidance * slots * dim * item * _widening(target, device)
    return nbytes(target.transformer.layers[-1]) + item * (2 * dim * dim + dim + vocab_size * dim) + cache


def kept_dtype(name: str, device: torch.device) -> str:
    """dtype=auto resolved for the device of the run, for a model that is built on the meta device."""
    if name != "auto":
        return name
    return "bfloat16" if is_bf16_fast(device) else "float32"
