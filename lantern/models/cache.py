"""A preallocated key/value cache whose rows advance unevenly. Tree nodes are written behind each row's committed
length; committing a path moves its entries to the front, and the rest is overwritten by the next round."""

import torch
from torch import Tensor

from lantern.errors import LanternError


class KVCache:
    """store [layers, 2, B R, S, H, Dh]; S slots hold the prefix, the committed tokens and one tree."""

    def __init__(
        self, layers: int, batch_size: int, guidance: int, slots: int, heads: int, head_dim: int, like: Tensor
    ) -> None:
        rows = batch_size * guidance
        self.store = like.new_zeros(layers, 2, rows, slots, heads, head_dim)
        self.guidance = guidance
        self.lengths = torch.zeros(batch_size, dtype=torch.long, device=like.device)  # [B] committed slots
        self.visible = torch.ones(batch_size, slots, dtype=torch.bool, device=like.device)  # false at caption pads
        self._select(torch.arange(batch_size, device=like.device))

    @property
    def slots(self) -> int:
        return self.store.shape[3]

    def layers(self) -> list["LayerCache"]:
        return [LayerCache(self, index) for index in range(len(self.store))]

    def _select(self, images: Tensor) -> None:
        """Names the images whose rows the next pass writes."""
        guidance = torch.arange(self.guidance, device=images.device)
        self._rows = (images[:, None] * self.guidance + guidance).flatten()[:, None]  # [B R, 1]

    def place(self, images: Tensor, count: int, offset: int = 0) -> None:
        """Reserves count slots, offset behind the committed ones of these images, for the next pass to write."""
        slots = self.lengths[images, None] + torch.arange(offset, offset + count, device=images.device)
        self.extent = int(slots.max()) + 1
        if self.extent > self.slots:
            raise LanternError(f"the cache has {self.slots} slots and {self.extent} are needed; allocate larger trees")
        self._in_place = torch.equal(images, torch.arange(len(self.lengths), device=images.device))
        self._select(images)
        self._slots = slots.repeat_interleave(self.guidance, 0)

    def mask(self, images: Tensor, sees: Tensor, dtype: torch.dtype) -> Tensor:
        """sees [B, N, M]: which of the M slots behind the committed ones each new row sees -> additive mask
        [B R, 1, N, extent]; everything visible among the committed slots is seen."""
        columns = torch.arange(self.extent, device=sees.device)
        lengths = self.lengths[images, None]
        committed = self.visible[images, : self.extent] & (columns < lengths)  # [B, S]
        seen = committed[:, None].repeat(1, sees.shape[1], 1)
        behind = lengths + torch.arange(sees.shape[2], device=sees.device)  # [B, M]
        seen.scatter_(2, behind[:, None].expand_as(sees), sees)
        mask = torch.zeros(seen.shape, dtype=dtype, device=sees.device).masked_fill_(~seen, -torch.inf)
        return mask.repeat_interleave(self.guidance, 0)[:, None]

    def advance(self, path: Tensor, accepted: Tensor) -> None:
        """Keeps the placed nodes on each image's path [B, A]; accepted [B] counts them, the first left out."""
        self.compact(path[:, : int(accepted.max()) + 1])
        self.lengths += accepted + 1

    def compact(self, path: Tensor) -> None:
        """Moves the entries of placed nodes path [B, A] to the front of the placed slots; -1 moves nothing needed."""
        if path.shape[1] == 1:
            return
        offsets = torch.arange(path.shape[1], device=path.device)
        source = (self.lengths[:, None] + path.clamp(min=0)).repeat_interleave(self.guidance, 0)
        goal = (self.lengths[:, None] + offsets).repeat_interleave(self.guidance, 0)
        rows = torch.arange(len(source), device=path.device)[:, None]
        self.store[:, :, rows, goal] = self.store[:, :, rows, source]

    def keep(self, images: Tensor) -> None:
        """Shrinks the batch to these images, in this order."""
        guidance = torch.arange(self.guidance, device=images.device)
        rows = (images[:, None] * self.guidance + guidance).flatten()
        self.store = self.store[:, :, rows]
        self.lengths, self.visible = self.lengths[images], self.visible[images]


class LayerCache:
    """What one attention layer sees of the cache."""

    def __init__(self, cache: KVCache, index: int) -> None:
        self._cache, self._index = cache, index

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """[B R, N, H, Dh] each, written at the placed slots -> all slots up to the extent [B R, S, H, Dh]."""
        cache, store = self._cache, self._cache.store[self._index]
        store[0].index_put_((cache._rows, cache._slots), key)
        store[1].index_put_((cache._rows, cache._slots), value)
        if cache._in_place:
            return store[0, :, : cache.extent], store[1, :, : cache.extent]
        rows = cache._rows[:, 0]
        return store[0, rows, : cache.extent], store[1, rows, : cache.extent]
