"""Bounds of a share."""

from lantern.metrics.resampling import NORMAL_95


def share_bounds(share: float, count: int) -> tuple[float, float]:
    """95 % bounds of a share of `count` images (Wilson's interval, which stays within [0, 1]); nan, nan of none."""
    if not count:
        return float("nan"), float("nan")
    centre, spread = share + NORMAL_95**2 / (2 * count), share * (1 - share) / count + (NORMAL_95 / (2 * count)) ** 2
    scale = 1 + NORMAL_95**2 / count
    return (centre - NORMAL_95 * spread**0.5) / scale, (centre + NORMAL_95 * spread**0.5) / scale
