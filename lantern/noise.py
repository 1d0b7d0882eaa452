"""One counter-based noise stream per image: value = hash(image seed, purpose, counters), pure and vectorised.
The same integers on every device; nothing depends on batch size, order, or what other images do.

Seeds and the state before the last counter have 64 bits, in two lanes of 32. Each step permutes the states, so that
different images keep different ones. A value has 32 bits. The last counter (the code, when a whole row is made) is not
hashed into the state: value = mix(low + counter * (high | 1)). A row of noise is therefore identified by 63 bits."""

import hashlib
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

AHEAD = 31  # prefetched rows of noise: one large kernel is cheaper than many small ones
MAX_TABLE = 1 << 16  # numbers that a CPU makes at once: twenty operations on them stay in its cache
MASK = 0xFFFFFFFF
FIRST, SECOND, GOLDEN, OTHER = 0x85EBCA6B, 0xC2B2AE35, 0x9E3779B9, 0x5BD1E995
MIN_TORCH_COUNTERS = 1024  # last counters from which on torch is faster than numpy


def hashed(seed: Tensor, purpose: int, *counters: Tensor) -> Tensor:
    """seed: int64. Returns int64 in [0, 2^32); the shapes of seed and counters broadcast."""
    return bits(seed, purpose, *counters).long() & MASK


def bits(seed: Tensor, purpose: int, *counters: Tensor) -> Tensor:
    """`hashed`, as int32. On a CPU small inputs go through numpy, which is 5x faster there."""
    if not seed.is_cpu:
        return bits_on_device(seed, purpose, *counters)
    *few, last = counters
    with np.errstate(over="ignore"):  # products wrap around, for single numbers as well
        state, stride = _key_on_host(seed, purpose, few)
        if last.numel() < MIN_TORCH_COUNTERS:
            return _signed_tensor(_mix_on_host(state + _unsigned(last) * stride))
    return _mix(_signed_tensor(state) + last.int() * _signed_tensor(stride))


def bits_on_device(seed: Tensor, purpose: int, *counters: Tensor) -> Tensor:
    """The same in torch."""
    *few, last = counters
    low = _mix(seed.int() ^ _signed(purpose * GOLDEN & MASK))
    high = _mix((seed >> 32).int() ^ _signed(OTHER) ^ low)
    low = _mix(low + high)
    for counter in few:
        low = _mix(low + counter.int() * (high | 1))
        high = _mix((high ^ _signed(OTHER)) + low)
    return _mix(low + last.int() * (high | 1))


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 16)).mul_(_signed(FIRST))
    x.bitwise_xor_(_shifted(x, 13)).mul_(_signed(SECOND))
    return x.bitwise_xor_(_shifted(x, 16))


def _shifted(x: Tensor, count: int) -> Tensor:  # logical shift to the right
    return (x >> count).bitwise_and_(MASK >> count)


def _signed(x: int) -> int:
    return x - (x >> 31 << 32)


def _key_on_host(seed: Tensor, purpose: int, counters: list[Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """Both lanes of the state before the last counter: where its values start, and their stride."""
    low = _mix_on_host(_unsigned(seed) ^ np.uint32(purpose * GOLDEN & MASK))
    high = _mix_on_host(_unsigned(seed >> 32) ^ np.uint32(OTHER) ^ low)
    low = _mix_on_host(low + high)
    for counter in counters:
        low = _mix_on_host(low + _unsigned(counter) * (high | np.uint32(1)))
        high = _mix_on_host((high ^ np.uint32(OTHER)) + low)
    return low, high | np.uint32(1)  # odd: no two codes of a row share a value


def _mix_on_host(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(FIRST)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(SECOND)
    return x ^ (x >> np.uint32(16))


def _unsigned(x: Tensor) -> np.ndarray:
    return x.numpy().astype(np.uint32)


def _signed_tensor(x: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(x).view(np.int32))


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
    """The race: argmax(law / Exp) [...] over codes, from laws and weights 1 / Exp [..., V], is argmax(log law + G)
    without a logarithm. The first of equals wins."""
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


PICK_SPREAD = 0.5  # of log p about log q: the temperature at which softmax(log q + G) estimates the target's pick


class StoredPicks(NamedTuple):
    """The noise of picks, from tensors alone: the part of Noise that shared noise reads."""

    made: Tensor  # [B, window, V] exp(G)
    used: Tensor  # [B] rows before the root's own

    def noise_at_depths(self, depths: Tensor) -> Tensor:
        """See Noise."""
        window = self.made.shape[1]
        rows = (self.used[:, None] + depths).clamp(max=window - 1)
        rows += window * torch.arange(len(rows), device=rows.device)[:, None]
        return self.made.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)

    def noise_of_chain(self, count: int) -> Tensor:
        """See Noise."""
        return self.noise_at_depths(torch.arange(count, device=self.used.device).expand(len(self.used), -1))


class Noise:
    """The streams of the images in a batch. position[b] is the index of row b's root token (-1 before the first token).
    The rows exp(G) of picks are computed once, several at a time, when a round first reads them, and stored in order of
    position: a verification that reads none pays for none."""

    def __init__(
        self, batch_size: int, vocab_size: int, depth: int, device: torch.device | str = "cpu", num_nodes: int = 1
    ) -> None:
        """depth: of the deepest node with a pick; num_nodes: of a tree whose children are judged."""
        self.seeds = torch.zeros(batch_size, dtype=torch.long, device=device)
        self.position = torch.full((batch_size,), -1, device=device)
        self._nodes = torch.arange(num_nodes, device=device)
        self._coins: Tensor | None = None  # [B, N] of this round: computed together
        self._depth, self._window = depth, depth + 1 + AHEAD
        self._left = [0] * batch_size  # on the host: unused rows, the last ones of `_made`
        self._made = torch.zeros(batch_size, 0, vocab_size, device=device)  # [B, window, V] once it is read
        self._used = torch.full_like(self.position, self._window)  # [B] rows before the root's own, or more
        # off the CPU launches cost more than what they compute: images that will soon have too few are filled as well
        self._few = depth + (0 if self._used.is_cpu else AHEAD // 2)
        self._codes = torch.arange(vocab_size, dtype=torch.int32, device=device)

    def admit(self, rows: Tensor, seeds: Tensor) -> None:
        """Rows [B] start new images with seeds [B]."""
        self.seeds[rows] = seeds
        self.position[rows] = -1
        self._coins = None
        self._used[rows] = self._window
        for row in rows.tolist():
            self._left[row] = 0

    def advance(self, counts: list[int], committed: Tensor) -> None:
        """Advances the roots by the committed tokens: the same numbers on the host and as [B]."""
        self.position += committed
        self._used += committed
        self._coins = None
        self._left = [max(0, left - count) for left, count in zip(self._left, counts, strict=True)]

    def keep(self, rows: Tensor) -> None:
        """Shrinks the batch to these rows, in this order."""
        self.seeds, self.position, self._coins = self.seeds[rows], self.position[rows], None
        self._made, self._used = self._made[rows], self._used[rows]
        self._left = [self._left[row] for row in rows.tolist()]

    def _ready(self) -> None:
        """Makes the rows that a round may read, where some are missing. Recorded passes cannot: they read `tables`."""
        if min(self._left) <= self._depth:
            self._fill()

    def _fill(self) -> None:
        """Moves the unused rows of the images that have too few to the front and makes those behind them."""
        window, is_cpu = self._window, self._made.is_cpu
        if not self._made.shape[1]:
            self._made = self._made.new_empty(len(self._left), window, len(self._codes))
        left = [count for count in self._left if count <= self._few]
        rows = self._used.topk(len(left)).indices[:, None]  # of these images, without waiting for the device
        used, ahead = self._used[rows].clamp(max=window), torch.arange(window, device=rows.device)
        if most := max(left):
            self._made[rows, ahead[:most]] = self._made[rows, (used + ahead[:most]).clamp(max=window - 1)]
        slots = (window - used + ahead[: window - min(left)]).clamp(max=window - 1)  # fewer to make: the last one again
        chunk = max(1, MAX_TABLE // (len(left) * len(self._codes))) if is_cpu else window
        for part in slots.split(chunk, dim=1):
            self._made[rows, part] = self._picks(self.seeds[rows[:, 0]], self.position[rows] + 1 + part)
        self._left = [window if count <= self._few else count for count in self._left]
        self._used[rows] = 0

    def _picks(self, seeds: Tensor, positions: Tensor) -> Tensor:  # [M], [M, K] -> [M, K, V] what is stored
        return pick_noise(seeds, positions, len(self._codes))

    @property
    def tables(self) -> tuple[Tensor, Tensor]:
        """What StoredPicks reads."""
        self._ready()
        return self._made, self._used

    def noise_at_depths(self, depths: Tensor) -> Tensor:
        """[B, N] depths of nodes -> exp(G) [B, N, V] of the tokens behind them."""
        if len(self._left) == 1:
            return self._ahead().index_select(1, depths[0])
        return StoredPicks(*self.tables).noise_at_depths(depths)

    def _ahead(self) -> Tensor:
        """The unused rows of a single image."""
        self._ready()
        return self._made[:, self._window - self._left[0] :]

    def noise_of_chain(self, count: int) -> Tensor:
        """The same of depths 0, 1, … count - 1: [B, count, V]."""
        return self._ahead()[:, :count] if len(self._left) == 1 else StoredPicks(*self.tables).noise_of_chain(count)

    def gumbel(self, purpose: Purpose, *counters: Tensor) -> Tensor:
        """counters broadcasting to [B] or [B, N] -> standard Gumbel [B, V] or [B, N, V]."""
        return self._race(purpose, *counters).log_().neg_()

    def weights(self, purpose: Purpose, *counters: Tensor) -> Tensor:
        """As gumbel, its exponential."""
        return self._race(purpose, *counters).reciprocal_()

    def _race(self, purpose: Purpose, *counters: Tensor) -> Tensor:
        seeds = self.seeds.view(-1, *[1] * counters[0].dim())
        per_row = [counter[..., None] for counter in counters]
        # the code comes last: all counters before it are hashed once per row, not once per code
        return _exponential(bits(seeds, purpose, *per_row, self._codes))

    def uniform(self, purpose: Purpose, *counters: Tensor) -> Tensor:
        """counters broadcasting to [B] or [B, N] -> uniform in [0, 1), in multiples of 2^-24."""
        seeds = self.seeds.view(-1, *[1] * (counters[0].dim() - 1))
        return (hashed(seeds, purpose, *counters) >> 8).float() * 2.0**-24

    def accepts(self, probability: Tensor, node: Tensor) -> Tensor:
        """One coin per node [B] or [B, M]: true with the probability of that shape; never at 0, always at 1."""
        if self._coins is None:
            self._coins = self.uniform(Purpose.COIN, self.position[:, None], self._nodes)
        return self._coins.gather(1, node.view(len(node), -1)).view_as(node) < probability

    def draw(self, law: Tensor) -> Tensor:
        """The recovered or bonus token of a row, from law [B, V]."""
        return gumbel_argmax(law, self.weights(Purpose.RESIDUAL, self.position))


def pick_noise(seeds: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """exp(G) of the tokens at these positions, [N] or [B, N], of images with these seeds [B]: [B, N, V]."""
    codes = torch.arange(vocab_size, dtype=torch.int32, device=seeds.device)
    return _exponential(bits(seeds[:, None, None], Purpose.PICK, positions[..., None], codes)).reciprocal_()


class GreedyNoise(Noise):
    """Temperature 0: picks are made without noise."""

    def __init__(self, batch_size: int, vocab_size: int, *others: Any) -> None:
        super().__init__(batch_size, 1, *others)  # one number a position is enough: it broadcasts over codes

    def _fill(self) -> None:
        self._made = self._made.new_ones(len(self._left), self._window, 1)
        self._left = [self._window] * len(self._left)
        self._used.zero_()
