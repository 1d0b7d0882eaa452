"""A hash of counters, the source of all noise: the same integers on every device. Its steps are murmur3's finaliser, a
bijection of 32-bit integers, in int32, whose products wrap around as they are to."""

import numpy as np
import torch
from torch import Tensor

MASK = 0xFFFFFFFF
FIRST, SECOND, GOLDEN, OTHER = 0x85EBCA6B, 0xC2B2AE35, 0x9E3779B9, 0x5BD1E995
TABLE = 1024  # counters in the last place from which on torch is the faster one


def hashed(seed: Tensor, purpose: int, *counters: Tensor) -> Tensor:
    """int64 in [0, 2^32); the shapes of seed and counters broadcast."""
    return bits(seed, purpose, *counters).long() & MASK


def bits(seed: Tensor, purpose: int, *counters: Tensor) -> Tensor:
    """The same as int32. On a processor numpy works out all but a table's last counter: a dozen operations on a few
    numbers, which cost torch five times as much."""
    if not seed.is_cpu:
        return bits_on_device(seed, purpose, *counters)
    *few, last = counters
    with np.errstate(over="ignore"):  # of a single number, whose products wrap around like all others
        state, stride = _key_on_host(seed, purpose, few)
        if last.numel() < TABLE:
            return _signed_tensor(_mix_on_host(state + _unsigned(last) * stride))
    return _mix(_signed_tensor(state) + last.int() * _signed_tensor(stride))


def bits_on_device(seed: Tensor, purpose: int, *counters: Tensor) -> Tensor:
    """The same by torch alone."""
    state = _mix(seed.int() ^ _signed(purpose * GOLDEN & MASK))
    for counter in counters:
        stride = _mix(state ^ OTHER).bitwise_or_(1)  # a stride of its own: no two streams are shifted copies
        state = _mix(state + counter.int() * stride)
    return state


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 16)).mul_(_signed(FIRST))
    x.bitwise_xor_(_shifted(x, 13)).mul_(_signed(SECOND))
    return x.bitwise_xor_(_shifted(x, 16))


def _shifted(x: Tensor, places: int) -> Tensor:  # to the right, zeros coming in
    return (x >> places).bitwise_and_(MASK >> places)


def _signed(x: int) -> int:
    return x - (x >> 31 << 32)


def _key_on_host(seed: Tensor, purpose: int, counters: list[Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """The state before the last counter, and the stride of that one."""
    state = _mix_on_host(_unsigned(seed) ^ np.uint32(purpose * GOLDEN & MASK))
    for counter in counters:
        state = _mix_on_host(state + _unsigned(counter) * _stride_on_host(state))
    return state, _stride_on_host(state)


def _stride_on_host(state: np.ndarray) -> np.ndarray:
    return _mix_on_host(state ^ np.uint32(OTHER)) | np.uint32(1)


def _mix_on_host(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(FIRST)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(SECOND)
    return x ^ (x >> np.uint32(16))


def _unsigned(x: Tensor) -> np.ndarray:
    return x.numpy().astype(np.uint32)


def _signed_tensor(x: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(x).view(np.int32))
