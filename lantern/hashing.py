"""The hash behind the noise: a pure, vectorised function of an image seed, a purpose and counters, the same integers on
every device.

Seeds and the state before the last counter have 64 bits, in two lanes of 32. Each step permutes the states, so that
different images keep different ones. A value has 32 bits. The last counter (the code, when a whole row is made) is not
hashed into the state: value = mix(low + counter * (high | 1)). A row of noise is therefore identified by 63 bits."""

import numpy as np
import torch
from torch import Tensor

MASK = 0xFFFFFFFF
FIRST, SECOND, GOLDEN, OTHER = 0x85EBCA6B, 0xC2B2AE35, 0x9E3779B9, 0x5BD1E995
MIN_TORCH_COUNTERS = 1024  # last counters from which on torch is faster than numpy


def hash_counters(seed: Tensor, purpose: int, *counters: Tensor) -> Tensor:
    """seed: int64. Returns int64 in [0, 2^32); the shapes of seed and counters broadcast."""
    return bits(seed, purpose, *counters).long() & MASK


def bits(seed: Tensor, purpose: int, *counters: Tensor) -> Tensor:
    """`hash_counters`, as int32. On a CPU small inputs go through numpy, which is 5x faster there."""
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
    x = (x ^ _shift_right(x, 16)).mul_(_signed(FIRST))
    x.bitwise_xor_(_shift_right(x, 13)).mul_(_signed(SECOND))
    return x.bitwise_xor_(_shift_right(x, 16))


def _shift_right(x: Tensor, count: int) -> Tensor:  # logical shift to the right
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
