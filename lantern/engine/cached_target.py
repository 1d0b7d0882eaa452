"""What targets with a key/value cache have in common: settings, configured copies, and the memory of the cache."""

from collections.abc import Sequence
from copy import copy
from math import prod
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from lantern.engine.cache import KVCache, ReusableCache
from lantern.engine.graphs import CudaRecorder, EagerPasses, PassGraphs
from lantern.identity import digest, user_code


class ImageTokenizer(Protocol):
    """Decodes image tokens [B, L] to images [B, 3, H, W] in [0, 1]."""

    codebook: Tensor  # [V, C]

    def decode(self, tokens: Tensor) -> Tensor: ...


class CachedTarget:
    """The part of lantern.types.Target that does not depend on the transformer. Subclasses define `embed_weight`,
    `transformer`, `prefix_len`, `num_tokens`, `_read_example` and `_cache_of`: ReusableCache.allocate's arguments."""

    def __init__(self, tokenizer: ImageTokenizer, cfg_scale: float, weights_hash: str, device: torch.device) -> None:
        self.tokenizer, self.codebook, self.weights_hash = tokenizer, tokenizer.codebook, weights_hash
        self.cfg_scale, self.compiles = cfg_scale, False
        gpu = device.type == "cuda"
        self.passes: EagerPasses | PassGraphs = PassGraphs(CudaRecorder(device)) if gpu else EagerPasses()
        self.drafter_caches = ReusableCache()  # one drafter decodes at a time
        self._caches = ReusableCache(self.drafter_caches)

    def configured(self, cfg_scale: float, compiled: bool = False) -> Self:
        """This target under other settings: a shallow copy that shares weights, cache memory and recorded passes. Only
        the copy whose allocate was called last may decode."""
        target = copy(self)
        target.cfg_scale, target.compiles = cfg_scale, compiled
        return target

    @property
    def num_layers(self) -> int:
        return len(self.transformer.layers)

    @property
    def attending_modules(self) -> list[nn.Module]:
        """The modules in which tokens meet: those of somebody else may not keep to a tree's mask."""
        layers = [*self.transformer.layers]
        return [self.transformer, *layers, *(getattr(layer, "self_attn", layer) for layer in layers)]

    def hand_out(self, layers: Sequence[int]) -> None:
        """Until the next allocate, passes append the inputs of these layers to their features: Forward.features
        [B, R, N, F], F = (1 + len(layers)) D."""
        self.cache.layers = tuple(layers)

    @property
    def guidance(self) -> int:
        return 1 if self.cfg_scale == 1 else 2

    @property
    def cache(self) -> KVCache | None:
        """The cache of the last allocate, by any of the copies."""
        return self._caches.current

    @property
    def held_bytes(self) -> int:
        return self._caches.nbytes + self.drafter_caches.nbytes + self.passes.nbytes

    def image_bytes(self, num_nodes: int) -> int:
        *shape, like = self._cache_of(1, num_nodes)
        return 2 * prod(shape) * like.element_size()  # keys and values

    def allocate(self, batch_size: int, num_nodes: int) -> None:
        self._caches.allocate(*self._cache_of(batch_size, num_nodes))
        self.passes.begin()

    def release(self) -> None:
        self._caches.release()  # and those of drafters
        self.passes.clear()

    def reading_hash(self, caption: str) -> str:
        """A hash of what weights_hash leaves out: how the target reads captions, by one example, its code where it is
        the user's, and the sizes of its weights, since random ones have no hash."""
        body, (reader, read) = self.transformer, self._read_example(caption)
        sizes = [list(weight.shape) for weight in (self.embed_weight, *body.parameters(), *body.buffers())]
        code = user_code([{"_target_": f"{part.__module__}.{type(part).__name__}"} for part in (self, body, *reader)])
        return digest([sizes, self.prefix_len, *([code] if code else []), *read])

    def empty_tokens(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.long, device=self.codebook.device)

    def guide(self, features: Tensor) -> Tensor:
        """[B, R, N, D] -> [B, N, D]. The head is linear: guiding features is guiding logits, at half the cost."""
        if features.shape[1] == 1:
            return features[:, 0]
        return torch.lerp(features[:, 1], features[:, 0], self.cfg_scale)

    @torch.inference_mode()
    def decode(self, tokens: Tensor) -> Tensor:
        """[B, L] -> images [B, 3, H, W] in [0, 1]."""
        return self.tokenizer.decode(tokens)
