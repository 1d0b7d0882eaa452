"""One counter-based noise stream per image: nothing depends on batch size, order, or what other images do."""

import hashlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lantern.hashing import bits, hash_counters

AHEAD = 31  # prefetched rows of noise: one large kernel is cheaper than many small ones
MAX_TABLE = 1 << 16  # numbers that a CPU makes at once: twenty operations on them stay in its cache


class Purpose(IntEnum):
    """Draws of different purposes never share a key."""

    CHILDREN = 1
    COIN = 2
    RESIDUAL = 3
    PICK = 4
    WINDOW = 5


def image_seed(seed: int, prompt: str, copy: int = 0) -> int:
    """64-bit key of one image, as int64: hash(seed, prompt text, copy number)."""
    digest = hashlib.blake2b(f"{seed}\0{copy}\0{prompt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _exponential(bits: Tensor) -> Tensor:
    """Exp(1) in float32 from int32, relative precision kept where it is small, which is where races are decided."""
    minus_unit = bits.view(torch.uint32).float().add_(0.5).mul_(-(2.0**-32))
    return minus_unit.clamp_(min=2.0**-24 - 1).log1p_().neg_()


BLOCK = 64  # codes whose maximum is found first
MAX_DIRECT = 1 << 15  # weights up to which one operation is faster than six


def gumbel_argmax(laws: Tensor, weights: Tensor) -> Tensor:
    """laws [..., V], weights 1 / Exp [..., V] -> the winner of the exponential race, argmax(law / Exp) [...]. It equals
    argmax(log law + G) but needs no logarithm. The first of equals wins."""
    times = laws * weights
    size = times.shape[-1]
    if not times.is_cpu or size % BLOCK or times.numel() <= MAX_DIRECT:
        return times.max(-1).indices
    blocks = times.unflatten(-1, (-1, BLOCK))  # on a CPU the maximum is vectorised, its index is not
    best = blocks.amax(-1).argmax(-1, keepdim=True)
    inside = blocks.gather(-2, best[..., None].expand(*best.shape, BLOCK))[..., 0, :].argmax(-1)
    return best[..., 0] * BLOCK + inside


def gumbel_topk(laws: Tensor, weights: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best `count` codes of the same race in order, and their log(law / Exp), [..., count] each."""
    times = laws * weights
    size = times.shape[-1]
    if not times.is_cpu or size % BLOCK or size < BLOCK * count:
        best = times.topk(count)
        return best.indices, best.values.log()
    blocks = times.unflatten(-1, (-1, BLOCK))  # the best `count` codes lie in the `count` blocks with the best maxima
    nearest = blocks.amax(-1).topk(count).indices  # [..., count]
    inside = blocks.gather(-2, nearest[..., None].expand(*nearest.shape, BLOCK)).flatten(-2)
    best = inside.topk(count)
    return nearest.gather(-1, best.indices // BLOCK) * BLOCK + best.indices % BLOCK, best.values.log()


PICK_SPREAD = 0.5  # of log p around log q: softmax((log q + G) / PICK_SPREAD) estimates the target's pick


class StoredPicks(NamedTuple):
    """The noise of picks, from tensors alone: the part of Noise that shared noise reads."""

    made: Tensor  # [B, window, V] exp(G)
    used: Tensor  # [B] index of the row of the token behind the root

    def noise_at_depths(self, depths: Tensor) -> Tensor:
        """[B, N] depths of nodes -> exp(G) [B, N, V] of the tokens behind them."""
        window = self.made.shape[1]
        rows = (self.used[:, None] + depths).clamp(max=window - 1)
        rows += window * torch.arange(len(rows), device=rows.device)[:, None]
        return self.made.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)

    def noise_of_chain(self, count: int) -> Tensor:
        """The same of depths 0, 1, … count - 1: [B, count, V]."""
        return self.noise_at_depths(torch.arange(count, device=self.used.device).expand(len(self.used), -1))


class RowCache:
    """Rows of numbers for the coming positions of each image, made several at a time when a round first reads them."""

    def __init__(self, batch_size: int, width: int, depth: int, device: torch.device | str) -> None:
        """width V of a row; depth: of the deepest node that is read."""
        self.depth, self.window = depth, depth + 1 + AHEAD
        self.rows = torch.zeros(batch_size, 0, width, dtype=torch.float32, device=device)  # [B, window, V] once read
        self.used = torch.full((batch_size,), self.window, device=device)  # [B] rows already consumed, or more
        self.left = [0] * batch_size  # on the host: unused rows, the last ones
        # off the CPU launches cost more than what they compute: images that will soon have too few are filled as well
        self.refill_at = depth + (0 if self.rows.is_cpu else AHEAD // 2)

    def restart(self, images: Tensor) -> None:
        """New images [M] take these slots."""
        self.used[images] = self.window
        for image in images.tolist():
            self.left[image] = 0

    def advance(self, counts: list[int], committed: Tensor) -> None:
        self.used += committed
        self.left = [max(0, left - count) for left, count in zip(self.left, counts, strict=True)]

    def keep(self, images: Tensor) -> None:
        """Shrinks the batch to these images, in this order."""
        self.rows, self.used = self.rows[images], self.used[images]
        self.left = [self.left[image] for image in images.tolist()]

    def ensure(self, make: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Generates the rows that a round may read, if any are missing. In images with too few, it moves unused rows to
        the front and fills the rest. make: images [M], positions behind the root [M, K] -> rows [M, K, V]."""
        if min(self.left) > self.depth:
            return
        window = self.window
        if not self.rows.shape[1]:
            self.rows = self.rows.new_empty(len(self.left), window, self.rows.shape[2])
        left = [count for count in self.left if count <= self.refill_at]
        images = self.used.topk(len(left)).indices  # without waiting for the device
        slots, used, ahead = images[:, None], self.used[images, None], torch.arange(window, device=images.device)
        used = used.clamp(max=window)
        if most := max(left):
            self.rows[slots, ahead[:most]] = self.rows[slots, (used + ahead[:most]).clamp(max=window - 1)]
        new = (window - used + ahead[: window - min(left)]).clamp(max=window - 1)  # fewer to make: the last one again
        chunk = max(1, MAX_TABLE // (len(left) * self.rows.shape[2])) if self.rows.is_cpu else window
        for part in new.split(chunk, dim=1):
            self.rows[slots, part] = make(images, part)
        self.left = [window if count <= self.refill_at else count for count in self.left]
        self.used[images] = 0


class Noise:
    """The streams of the images in a batch. position[b] is the index of row b's root token (-1 before the first token).
    A verification that reads no picks pays for none."""

    def __init__(
        self, batch_size: int, vocab_size: int, depth: int, device: torch.device | str = "cpu", num_nodes: int = 1
    ) -> None:
        """depth: of the deepest node whose pick is read; num_nodes: of the largest tree judged by coins."""
        self.seeds = torch.zeros(batch_size, dtype=torch.long, device=device)
        self.position = torch.full((batch_size,), -1, device=device)
        self._nodes = torch.arange(num_nodes, device=device)
        self._coins: Tensor | None = None  # [B, N] of this round: computed together
        self._codes = torch.arange(vocab_size, dtype=torch.int32, device=device)
        self._picks = RowCache(batch_size, vocab_size, depth, device)  # exp(G), in order of position

    def admit(self, rows: Tensor, seeds: Tensor) -> None:
        """Rows [B] start new images with seeds [B]."""
        self.seeds[rows] = seeds
        self.position[rows] = -1
        self._coins = None
        self._picks.restart(rows)

    def advance(self, counts: list[int], committed: Tensor) -> None:
        """Advances the roots by the committed tokens: the same numbers on the host and as [B]."""
        self.position += committed
        self._coins = None
        self._picks.advance(counts, committed)

    def keep(self, rows: Tensor) -> None:
        """Shrinks the batch to these rows, in this order."""
        self.seeds, self.position, self._coins = self.seeds[rows], self.position[rows], None
        self._picks.keep(rows)

    def _make_picks(self, images: Tensor, ahead: Tensor) -> Tensor:  # [M], [M, K] -> [M, K, V]
        return pick_noise(self.seeds[images], self.position[images, None] + 1 + ahead, len(self._codes))

    @property
    def tables(self) -> StoredPicks:
        """What a recorded pass reads in place of this object."""
        self._picks.ensure(self._make_picks)
        return StoredPicks(self._picks.rows, self._picks.used)

    def noise_at_depths(self, depths: Tensor) -> Tensor:  # as StoredPicks
        tables = self.tables
        if len(self.seeds) == 1:  # a slice is cheaper than a gather
            return tables.made[:, self._picks.window - self._picks.left[0] :].index_select(1, depths[0])
        return tables.noise_at_depths(depths)

    def noise_of_chain(self, count: int) -> Tensor:  # as StoredPicks
        tables = self.tables
        if len(self.seeds) == 1:
            return tables.made[:, self._picks.window - self._picks.left[0] :][:, :count]
        return tables.noise_of_chain(count)

    def gumbel(self, purpose: Purpose, *counters: Tensor) -> Tensor:
        """counters broadcasting to [B] or [B, N] -> standard Gumbel [B, V] or [B, N, V]."""
        return self._race(purpose, *counters).log_().neg_()

    def weights(self, purpose: Purpose, *counters: Tensor) -> Tensor:
        """exp(G) for the G of gumbel(), in the same shape."""
        return self._race(purpose, *counters).reciprocal_()

    def _race(self, purpose: Purpose, *counters: Tensor) -> Tensor:
        seeds = self.seeds.view(-1, *[1] * counters[0].dim())
        per_row = [counter[..., None] for counter in counters]
        # the code comes last: all counters before it are hashed once per row, not once per code
        return _exponential(bits(seeds, purpose, *per_row, self._codes))

    def uniform(self, purpose: Purpose, *counters: Tensor) -> Tensor:
        """counters broadcasting to [B] or [B, N] -> uniform in [0, 1), in multiples of 2^-24."""
        seeds = self.seeds.view(-1, *[1] * (counters[0].dim() - 1))
        return (hash_counters(seeds, purpose, *counters) >> 8).float() * 2.0**-24

    def accepts(self, probability: Tensor, node: Tensor) -> Tensor:
        """A coin per node [B] or [B, M]: true with the probability given in that shape; never at 0, always at 1."""
        if self._coins is None:
            self._coins = self.uniform(Purpose.COIN, self.position[:, None], self._nodes)
        return self._coins.gather(1, node.view(len(node), -1)).view_as(node) < probability

    def draw(self, law: Tensor) -> Tensor:
        """The recovered or bonus token of a row, from law [B, V]."""
        return gumbel_argmax(law, self.weights(Purpose.RESIDUAL, self.position))


def pick_noise(seeds: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """seeds [B] of images, positions [N] or [B, N] -> exp(G) of the tokens there [B, N, V]."""
    codes = torch.arange(vocab_size, dtype=torch.int32, device=seeds.device)
    return _exponential(bits(seeds[:, None, None], Purpose.PICK, positions[..., None], codes)).reciprocal_()


class GreedyNoise(Noise):
    """Temperature 0: picks are made without noise."""

    def __init__(self, batch_size: int, vocab_size: int, *others: Any) -> None:
        super().__init__(batch_size, 1, *others)  # one number a position is enough: it broadcasts over codes

    def _make_picks(self, images: Tensor, ahead: Tensor) -> Tensor:
        return torch.ones(*ahead.shape, 1, dtype=torch.float32, device=ahead.device)
