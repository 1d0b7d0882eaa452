"""A preallocated key/value cache whose rows advance unevenly. Tree nodes are written behind each row's committed
length; committing a path moves its entries to the front, and the rest is overwritten by the next round."""

from math import prod

import torch
from torch import Tensor

from lantern.errors import LanternError
from lantern.types import Verdict


class ReusableBuffer:
    """Memory that one cache after another lives in: new pages cost a processor more than a round does, and two caches
    at once would need twice what was reckoned."""

    def __init__(self) -> None:
        self._held: Tensor | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self._held is None else self._held.nbytes

    def take(self, like: Tensor, *shape: int) -> Tensor:
        """Entries of any finite value; all that was taken before is void. What is held is given up first where it is
        too small, or more than twice what is needed."""
        size, held = prod(shape), self._held
        if (
            held is None
            or not size <= held.numel() <= 2 * size
            or (held.dtype, held.device) != (like.dtype, like.device)
        ):
            self._held = held = None
            self._held = like.new_zeros(size)
        return self._held[:size].view(shape)


class KVCache:
    """store [layers, 2, B R, H, S, Dh]; S slots hold the prefix, the committed tokens and one tree. Lengths are kept on
    the host as well, so that no pass waits for the device to learn how far it must look."""

    def __init__(
        self,
        layers: int,
        batch_size: int,
        guidance: int,
        slots: int,
        heads: int,
        head_dim: int,
        like: Tensor,
        reserve: ReusableBuffer | None = None,
    ) -> None:
        """reserve: of the caches that stood here before, all of them given up."""
        self.store = (reserve or ReusableBuffer()).take(like, layers, 2, batch_size * guidance, heads, slots, head_dim)
        self.guidance = guidance
        self.grain = 0  # where set, extents are multiples of it and slots are always named: passes have few shapes
        self.lengths = torch.zeros(batch_size, dtype=torch.long, device=like.device)  # [B] committed slots
        self.visible = torch.ones(batch_size, slots, dtype=torch.bool, device=like.device)  # false at caption pads
        self._counts = [0] * batch_size  # lengths, on the host

    @property
    def slots(self) -> int:
        return self.store.shape[4]

    def admit(self, images: Tensor, length: int) -> None:
        """These images start anew with `length` committed slots, to be written through an PrefillView."""
        self.lengths[images] = length
        for image in images.tolist():
            self._counts[image] = length

    def reserve(self, count: int, offset: int = 0) -> None:
        """Reserves count slots, offset behind each image's committed ones, for the next pass to write: `placed`, the
        first of them or, where rows stand unevenly, all [B R, T]."""
        self.extent = max(self._counts) + offset + count
        if self.extent > self.slots:
            raise LanternError(f"the cache has {self.slots} slots and {self.extent} are needed; allocate larger trees")
        if self.grain:
            self.extent = min(-(-self.extent // self.grain) * self.grain, self.slots)
        self._seen = self.store[..., : self.extent, :].unbind(0)
        if min(self._counts) == max(self._counts) and not self.grain:  # rows stand alike, as one image's: plain copies
            self.placed = self._counts[0] + offset
            self._fresh = self.store[..., self.placed : self.placed + count, :].unbind(0)
        else:
            self._fresh = None
            slots = self.lengths[:, None] + torch.arange(offset, offset + count, device=self.lengths.device)
            self.placed = slots.repeat_interleave(self.guidance, 0)  # [B R, T]
            self.every = torch.arange(len(self.placed), device=slots.device)[:, None]

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """[B R, H, T, Dh] each, into the placed slots -> all slots up to the last one placed [B R, H, S, Dh]."""
        keys, values = self._seen[layer].unbind(0)
        if self._fresh is not None:
            fresh = self._fresh[layer]
            fresh[0], fresh[1] = key, value
        else:
            keys[self.every, :, self.placed] = key.transpose(1, 2).to(keys.dtype)  # places, unlike slices, do not cast
            values[self.every, :, self.placed] = value.transpose(1, 2).to(values.dtype)
        return keys, values

    def mask(self, sees: Tensor) -> Tensor:
        """sees [B, N, M]: which of the M slots behind the committed ones each new row sees -> additive mask
        [B R, 1, N, extent]; everything visible among the committed slots is seen."""
        start, end = min(self._counts), max(self._counts)
        if start == end and start + sees.shape[2] == self.extent:  # rows stand alike
            before = additive(self.visible[:, None, :start], self.store.dtype).expand(-1, -1, sees.shape[1], -1)
            mask = torch.cat([before, additive(sees, self.store.dtype)], -1)
            return mask.expand(-1, self.guidance, -1, -1).reshape(-1, 1, *mask.shape[2:])
        seen = self._committed(self.extent)[:, None].repeat(1, sees.shape[1], 1)
        behind = self.lengths[:, None] + torch.arange(sees.shape[2], device=sees.device)  # [B, M]
        seen.scatter_(2, behind[:, None].expand_as(sees), sees)
        return additive(seen, self.store.dtype).repeat_interleave(self.guidance, 0)

    def committed(self, ahead: int) -> Tensor:
        """Additive mask [B, 1, S] of the visible committed slots, up to `ahead` slots behind the longest row's."""
        return additive(self._committed(max(self._counts) + ahead)[:, None], self.store.dtype)[:, 0]

    def _committed(self, extent: int) -> Tensor:
        """[B, extent] true at the committed slots that are no pads."""
        columns = torch.arange(extent, device=self.lengths.device)
        return self.visible[:, :extent] & (columns < self.lengths[:, None])

    def advance(self, verdict: Verdict) -> None:
        """Keeps the placed nodes on each image's accepted path."""
        moving = [place for path in verdict.paths for place, node in enumerate(path) if node != place]
        if moving:  # else all stand where they are to stand
            self.compact(verdict.path[:, : max(verdict.counts) + 1], min(moving))
        self.extend([count + 1 for count in verdict.counts], verdict.moved)

    def extend(self, counts: list[int], committed: Tensor) -> None:
        """The first placed slots of each image count as committed: the same numbers on the host and as [B]."""
        self.lengths += committed
        self._counts = [length + count for length, count in zip(self._counts, counts, strict=True)]

    def compact(self, path: Tensor, stand: int) -> None:
        """Moves the entries of placed nodes path [B, A] to the front of the placed slots; -1 moves nothing needed, and
        the first `stand` stand there already."""
        path, offsets = path[:, stand:], torch.arange(stand, path.shape[1], device=path.device)
        if len(path) == 1:  # one image's entries lie in a row
            moved = self.store.index_select(4, self.lengths + path[0].clamp(min=0))
            start = self._counts[0] + stand
            self.store[..., start : start + path.shape[1], :] = moved
            return
        source = (self.lengths[:, None] + path.clamp(min=0)).repeat_interleave(self.guidance, 0)
        goal = (self.lengths[:, None] + offsets).repeat_interleave(self.guidance, 0)
        rows = torch.arange(len(source), device=path.device)[:, None]
        self.store[:, :, rows, :, goal] = self.store[:, :, rows, :, source]

    def keep(self, images: Tensor) -> None:
        """Shrinks the batch to these images, in this order. Those that stand where they stood are not copied."""
        kept = images.tolist()
        goals = [place for place, image in enumerate(kept) if place != image]
        if goals:
            places = torch.tensor(goals, device=images.device)
            self.store[:, :, self.rows(places)] = self.store[:, :, self.rows(images[places])]
        self.store = self.store[:, :, : len(kept) * self.guidance]
        self.lengths, self.visible = self.lengths[images], self.visible[images]
        self._counts = [self._counts[image] for image in kept]

    def rows(self, images: Tensor) -> Tensor:
        """[B] -> [B R] their rows in the store."""
        return (images[:, None] * self.guidance + torch.arange(self.guidance, device=images.device)).flatten()


class PrefillView:
    """The memory of a prefill: fresh rows go to the first slots of the admitted images and see each other alone."""

    def __init__(self, cache: KVCache, images: Tensor, length: int) -> None:
        cache.admit(images, length)
        self._store, self._rows = cache.store[..., :length, :], cache.rows(images)

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        kept = self._store[layer]
        kept[0, self._rows], kept[1, self._rows] = key.to(kept.dtype), value.to(kept.dtype)
        return kept[0, self._rows], kept[1, self._rows]


class SlotView:
    """The memory of a pass outside raster order: fresh rows go to slots [B R, T] and see any."""

    def __init__(self, cache: KVCache, slots: Tensor, extent: int) -> None:
        """extent: slots that may be seen, from the first one on."""
        self._store, self._slots = cache.store[..., :extent, :], slots
        self._every = torch.arange(len(slots), device=slots.device)[:, None]

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self._store[layer].unbind(0)
        keys[self._every, :, self._slots] = key.transpose(1, 2).to(keys.dtype)
        values[self._every, :, self._slots] = value.transpose(1, 2).to(values.dtype)
        return keys, values


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, N, S] bool -> [B, 1, N, S]: 0 where a row sees, minus infinity where it does not."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)[:, None]
