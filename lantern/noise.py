"""One counter-based noise stream per image: value = hash(image seed, purpose, counters), pure and vectorised.
The same integers on every device; nothing depends on batch size, order, or what other images do."""

import hashlib
from enum import IntEnum

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
AHEAD = 15  # Gumbel rows made beyond those a round may need: many small rows at once cost less than one by one


class Purpose(IntEnum):
    """Draws of different purposes never share a key."""

    CHILDREN = 1
    COIN = 2
    RESIDUAL = 3
    PICK = 4
    WINDOW = 5


def image_seed(seed: int, prompt: str, copy: int = 0) -> int:
    """32-bit key of one image: hash(seed, prompt text, copy number)."""
    digest = hashlib.blake2b(f"{seed}\0{copy}\0{prompt}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32-bit integers held in int64 (murmur3's finaliser); wrap-around keeps the low 32 bits exact."""
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _MASK
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & _MASK
    return x ^ (x >> 16)


def _hash(seed: Tensor, purpose: Purpose, *counters: Tensor) -> Tensor:
    """int64 in [0, 2^32); the shapes of seed and counters broadcast."""
    state = _mix(seed ^ (int(purpose) * 0x9E3779B9 & _MASK))
    for counter in counters:
        stride = _mix(state ^ 0x5BD1E995) | 1  # a stride of its own: no two streams are shifted copies of each other
        state = _mix((state + counter * stride) & _MASK)
    return state


def _exponential(bits: Tensor) -> Tensor:
    """Exp(1) in float32, relative precision kept where it is small, which is where races are decided."""
    unit = (bits.float() + 0.5) * 2.0**-32
    return -torch.log1p(-unit.clamp_(max=1 - 2.0**-24))


class Noise:
    """The streams of the images in a batch. Row b stands at position[b], the index of its root token (-1 before the
    first token). The Gumbel rows that picks are made with lie in a ring, each made once, several at a time."""

    def __init__(self, batch_size: int, vocab_size: int, depth: int, device: torch.device | str = "cpu") -> None:
        """depth: of the deepest node whose pick will be asked for."""
        self.seeds = torch.zeros(batch_size, dtype=torch.long, device=device)
        self.position = torch.full((batch_size,), -1, device=device)
        self._left = [0] * batch_size  # on the host: rows made behind the root's own
        self._depth = depth
        self._ring = torch.zeros(batch_size, depth + 1 + AHEAD, vocab_size, device=device)
        self._codes = torch.arange(vocab_size, device=device)

    def admit(self, rows: Tensor, seeds: Tensor) -> None:
        """Rows [B] start new images with seeds [B]."""
        self.seeds[rows] = seeds & _MASK
        self.position[rows] = -1
        for row in rows.tolist():
            self._left[row] = 0
        self._fill()

    def advance(self, committed: list[int]) -> None:
        """Roots move on by the committed tokens, one number a row."""
        self.position += torch.tensor(committed, device=self.position.device)
        self._left = [left - count for left, count in zip(self._left, committed, strict=True)]
        if min(self._left) < self._depth + 1:
            self._fill()

    def keep(self, rows: Tensor) -> None:
        self.seeds, self.position = self.seeds[rows], self.position[rows]
        self._ring, self._left = self._ring[rows], [self._left[row] for row in rows.tolist()]

    def _fill(self) -> None:
        window = self._ring.shape[1]
        made, last = self.position + torch.tensor(self._left, device=self.position.device), self.position + window
        steps = torch.arange(1, window - min(self._left) + 1, device=last.device)
        positions = torch.minimum(made[:, None] + steps, last[:, None])  # rows with fewer repeat their last one
        rows = torch.arange(len(positions), device=last.device)[:, None]
        self._ring[rows, positions % window] = self.gumbel(Purpose.PICK, positions)
        self._left = [window] * len(self._left)

    def picks(self, depth: int) -> Tensor:
        """G [B, V] of the token behind a node at this depth."""
        return self.picks_at(torch.full_like(self.position, depth)[:, None])[:, 0]

    def picks_at(self, depths: Tensor) -> Tensor:
        """[B, N] depths of nodes -> G [B, N, V] of the tokens behind them."""
        positions = self.position[:, None] + 1 + depths
        return self._ring[torch.arange(len(depths), device=depths.device)[:, None], positions % self._ring.shape[1]]

    def gumbel(self, purpose: Purpose, *counters: Tensor) -> Tensor:
        """counters broadcasting to [B] or [B, N] -> standard Gumbel [B, V] or [B, N, V]."""
        seeds = self.seeds.view(-1, *[1] * counters[0].dim())
        counters = [counter[..., None] for counter in counters]
        # the code comes last, so that all before it is hashed once a row and not once a code
        return -_exponential(_hash(seeds, purpose, *counters, self._codes)).log()

    def uniform(self, purpose: Purpose, *counters: Tensor) -> Tensor:
        """counters broadcasting to [B] or [B, N] -> uniform in [0, 1), as fine as float32 tells apart everywhere."""
        seeds = self.seeds.view(-1, *[1] * (counters[0].dim() - 1))
        return (_hash(seeds, purpose, *counters) >> 8).float() * 2.0**-24

    def accepts(self, probability: Tensor, node: Tensor) -> Tensor:
        """A coin a row for judging node [B]: true with probability [B]; never at 0, always at 1."""
        return self.uniform(Purpose.COIN, self.position, node) < probability

    def draw(self, law: Tensor) -> Tensor:
        """The recovered or bonus token of a row, from law [B, V]."""
        return (law.log() + self.gumbel(Purpose.RESIDUAL, self.position)).argmax(-1)


class GreedyNoise(Noise):
    """Temperature 0: picks are made without noise."""

    def _fill(self) -> None:
        self._left = [self._ring.shape[1]] * len(self._left)

    def __init__(self, batch_size: int, vocab_size: int, depth: int, device: torch.device | str = "cpu") -> None:
        super().__init__(batch_size, 1, depth, device)  # one zero a position is enough: it broadcasts over codes
