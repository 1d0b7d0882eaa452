"""A preallocated key/value cache whose rows advance unevenly. Tree nodes are written behind each row's committed
length; committing a path moves its entries to the front, and the rest is overwritten by the next round."""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from lantern.engine.graphs import Outputs, Run
from lantern.errors import LanternError
from lantern.types import PassRunner

EXTENT = 64  # slots: the smallest extent


class ReusableCache:
    """Holds one KVCache at a time and reuses its memory for the next. On a CPU, allocating pages costs more than a
    round, and two caches at once would need twice the estimated memory."""

    def __init__(self, *others: "ReusableCache") -> None:
        """others: freed as well before this one grows."""
        self.current: KVCache | None = None
        self._buffer: Tensor | None = None
        self._others = others

    @property
    def nbytes(self) -> int:
        return 0 if self._buffer is None else self._buffer.nbytes

    def allocate(
        self, layers: int, batch_size: int, guidance: int, slots: int, heads: int, head_dim: int, like: Tensor
    ) -> "KVCache":
        """An empty cache, its entries of any finite value; see KVCache. The former cache becomes void. The held memory
        is freed first if it is too small, or more than twice what is needed."""
        shape = layers, 2, batch_size * guidance, heads, slots, head_dim
        size, held, self.current = prod(shape), self._buffer, None
        is_like = held is not None and (held.dtype, held.device) == (like.dtype, like.device)
        if not is_like or not size <= held.numel() <= 2 * size:
            held = None
            self.release()
            self._buffer = like.new_zeros(size)
        self.current = KVCache(self._buffer[:size].view(shape), guidance)
        return self.current

    def release(self) -> None:
        self.current = self._buffer = None
        for other in self._others:
            other.release()


class KVCache:
    """store [layers, 2, B R, H, S, Dh]; S slots hold the prefix, the committed tokens and one tree. Lengths are kept on
    the host as well, so that no pass waits for the device to learn how far to read."""

    def __init__(self, store: Tensor, guidance: int) -> None:
        batch_size, slots, device = store.shape[2] // guidance, store.shape[4], store.device
        self.store, self.guidance, self.slots = store, guidance, slots
        self.lengths = torch.zeros(batch_size, dtype=torch.long, device=device)  # [B] committed slots
        self.visible = torch.ones(batch_size, slots, dtype=torch.bool, device=device)  # false at caption pads
        self._counts = [0] * batch_size  # lengths, on the host
        self.layers: tuple[int, ...] = ()  # whose inputs passes return; see CachedTarget.hand_out

    def admit(self, images: Tensor, length: int) -> None:
        """These images start anew with `length` committed slots, to be written through a PrefillView."""
        self.lengths[images] = length
        for image in images.tolist():
            self._counts[image] = length

    def reserve(self, count: int, offset: int = 0) -> None:
        """Reserves `count` slots for the next pass to write, starting `offset` behind each image's committed slots.
        `reserved` is the first of them if all images have the same length, else all of them [B R, T]."""
        self.extent = self.needed(count, offset)
        self._readable = self.store[..., : self.extent, :].unbind(0)
        if min(self._counts) == max(self._counts):  # equal lengths: plain copies
            self.reserved = self._counts[0] + offset
            self._fresh = self.store[..., self.reserved : self.reserved + count, :].unbind(0)
        else:
            self._fresh = None
            self.reserved = slots_behind(self.lengths, count, offset).repeat_interleave(self.guidance, 0)  # [B R, T]
            self._uneven = SlotView(self, self.reserved, self.extent)

    def needed(self, count: int, offset: int = 0) -> int:
        """Slots needed in all for `count` more, starting `offset` slots behind the longest image's committed ones."""
        extent = max(self._counts) + offset + count
        if extent > self.slots:
            raise LanternError(f"the cache has {self.slots} slots and {extent} are needed; allocate larger trees")
        return extent

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Writes both [B R, H, T, Dh] into the reserved slots -> slots up to the last reserved one [B R, H, S, Dh]."""
        if self._fresh is None:
            return self._uneven.update(layer, key, value)
        fresh = self._fresh[layer]
        fresh[0], fresh[1] = key, value
        return self._readable[layer].unbind(0)

    def mask(self, attends: Tensor) -> Tensor:
        """attends [B, N, M]: which of the M slots behind the committed ones each new token attends to -> additive mask
        [B R, 1, N, extent]. All visible committed slots are attended to."""
        start, end = min(self._counts), max(self._counts)
        if start == end and start + attends.shape[2] == self.extent:  # equal lengths
            before = additive(self.visible[:, None, :start], self.store.dtype).expand(-1, -1, attends.shape[1], -1)
            mask = torch.cat([before, additive(attends, self.store.dtype)], -1)
            return mask.expand(-1, self.guidance, -1, -1).reshape(-1, 1, *mask.shape[2:])
        mask = tree_mask(self.visible[:, : self.extent], self.lengths, attends)
        return additive(mask, self.store.dtype).repeat_interleave(self.guidance, 0)

    def move(self, path: Tensor, paths: list[list[int]], committed: Tensor) -> None:
        """Commits the reserved slots of the accepted path [B, A]. paths: the same on the host, -1 for a node whose slot
        is unknown there; committed [B]: lengths of the paths."""
        moving = [index for nodes in paths for index, node in enumerate(nodes) if node != index]
        counts = [len(nodes) for nodes in paths]
        if moving:  # else every entry is in place
            self.compact(path[:, : max(counts)], min(moving))
        self.extend(counts, committed)

    def extend(self, counts: list[int], committed: Tensor) -> None:
        """Commits the first reserved slots of each image: counts on the host, committed [B] the same on the device."""
        self.lengths += committed
        self._counts = [length + count for length, count in zip(self._counts, counts, strict=True)]

    def compact(self, path: Tensor, fixed: int) -> None:
        """Moves the entries of the nodes path [B, A] to the front of the reserved slots; what -1 moves is not read. The
        first `fixed` entries are in place already."""
        path, offsets = path[:, fixed:], torch.arange(fixed, path.shape[1], device=path.device)
        if len(path) == 1:  # one image's entries are contiguous
            moved = self.store.index_select(4, self.lengths + path[0].clamp(min=0))
            start = self._counts[0] + fixed
            self.store[..., start : start + path.shape[1], :] = moved
            return
        source = (self.lengths[:, None] + path.clamp(min=0)).repeat_interleave(self.guidance, 0)
        goal = (self.lengths[:, None] + offsets).repeat_interleave(self.guidance, 0)
        rows = torch.arange(len(source), device=path.device)[:, None]
        self.store[:, :, rows, :, goal] = self.store[:, :, rows, :, source]

    def keep(self, images: Tensor) -> None:
        """Shrinks the batch to these images, in this order. Those that keep their index are not copied."""
        kept = images.tolist()
        moved = [index for index, image in enumerate(kept) if index != image]
        if moved:
            goals = torch.tensor(moved, device=images.device)
            self.store[:, :, rows_of(goals, self.guidance)] = self.store[:, :, rows_of(images[goals], self.guidance)]
        self.store = self.store[:, :, : len(kept) * self.guidance]
        self.lengths, self.visible = self.lengths[images], self.visible[images]
        self._counts = [self._counts[image] for image in kept]


class PrefillView:
    """The cache as a prefill sees it: new entries go to an image's first slots and attend to each other only."""

    def __init__(self, cache: KVCache, images: Tensor, length: int) -> None:
        cache.admit(images, length)
        self._store, self._rows = cache.store[..., :length, :], rows_of(images, cache.guidance)

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        kept = self._store[layer]
        kept[0, self._rows], kept[1, self._rows] = key.to(kept.dtype), value.to(kept.dtype)
        return kept[0, self._rows], kept[1, self._rows]


class SlotView:
    """The cache as a pass outside raster order sees it: new entries go to slots [B R, T] and may attend to any."""

    def __init__(self, cache: KVCache, slots: Tensor, extent: int) -> None:
        """extent: slots that may be attended to, from the first one on."""
        self._readable, self._slots = cache.store[..., :extent, :], slots
        self._every = torch.arange(len(slots), device=slots.device)[:, None]

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self._readable[layer].unbind(0)
        keys[self._every, :, self._slots] = key.transpose(1, 2).to(keys.dtype)  # indexing does not cast
        values[self._every, :, self._slots] = value.transpose(1, 2).to(values.dtype)
        return keys, values


class IndexedView:
    """The cache as seen by a recorded pass that writes behind the committed slots. It works like KVCache, but reads
    everything that differs between rounds from tensors."""

    def __init__(self, cache: KVCache, lengths: Tensor, visible: Tensor, slots: range, extent: int) -> None:
        """lengths, visible: the cache's; slots: to write, behind the committed ones."""
        self.lengths, self._visible, self._cache, self._extent = lengths, visible[:, :extent], cache, extent
        self.store = cache.store
        self.reserve(len(slots), slots.start)

    def reserve(self, count: int, offset: int = 0) -> None:
        self.reserved = slots_behind(self.lengths, count, offset).repeat_interleave(self._cache.guidance, 0)
        self.update = SlotView(self._cache, self.reserved, self._extent).update

    def mask(self, attends: Tensor) -> Tensor:
        mask = additive(tree_mask(self._visible, self.lengths, attends), self.store.dtype)
        return mask.repeat_interleave(self._cache.guidance, 0)


TreeView = KVCache | IndexedView


def rows_of(images: Tensor, guidance: int) -> Tensor:
    """[B] -> [B R] their rows in a store."""
    return (images[:, None] * guidance + torch.arange(guidance, device=images.device)).flatten()


def slots_behind(lengths: Tensor, count: int, offset: int = 0) -> Tensor:
    """lengths [B] -> [B, count] the slots from `offset` behind the committed ones on."""
    return lengths[:, None] + torch.arange(offset, offset + count, device=lengths.device)


def tree_mask(visible: Tensor, lengths: Tensor, attends: Tensor) -> Tensor:
    """visible [B, S], lengths [B], attends [B, N, M] as KVCache.mask's -> [B, N, S] true where attended to."""
    committed = visible & (torch.arange(visible.shape[1], device=lengths.device) < lengths[:, None])
    behind = slots_behind(lengths, attends.shape[2])[:, None].expand_as(attends)
    return committed[:, None].repeat(1, attends.shape[1], 1).scatter_(2, behind, attends)


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, N, S] bool, true where attended -> additive attention mask [B, 1, N, S]: 0 there, else minus infinity."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)[:, None]


def extent_of(slots: int) -> int:
    """Rounds `slots` up to the number that a pass reads: above EXTENT, at most a quarter more. Each extent has its own
    recording; there are four extents between a length and its double."""
    step = max(EXTENT, 1 << max(0, (slots - 1).bit_length() - 3))
    return -(-slots // step) * step


class CachePass(NamedTuple):
    """Passes over one cache: their name, and the extents that they read."""

    name: str
    extent_of: Callable[[int], int]

    def __call__(
        self, passes: PassRunner, cache: KVCache, slots: range, run: Run, *inputs: Tensor, settings: tuple = ()
    ) -> Outputs:
        """run(view, *inputs) with a TreeView that writes behind the committed slots; settings: see PassGraphs."""
        if not passes.has_graphs:
            cache.reserve(len(slots), slots.start)
            return run(cache, *inputs)
        extent = min(self.extent_of(cache.needed(len(slots), slots.start)), cache.slots)

        def indexed(lengths: Tensor, visible: Tensor, *inputs: Tensor) -> Outputs:
            return run(IndexedView(cache, lengths, visible, slots, extent), *inputs)

        given, settings = (cache.lengths, cache.visible, *inputs), (slots, extent, *settings)
        return passes(self.name, indexed, *given, store=cache.store, settings=settings)


TARGET_PASS = CachePass("target", extent_of)
# of a drafter at most twice as many slots: one layer reads them, in several recordings a round
DRAFTER_PASS = CachePass("drafter", lambda slots: max(EXTENT, 1 << (slots - 1).bit_length()))
