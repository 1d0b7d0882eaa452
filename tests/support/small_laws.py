"""lantern.check_law on the smallest tables, for parts with more draws than its own sizes allow to enumerate."""

import lantern
from lantern.laws import certificate
from lantern.sampling import Sampling


def found(sizes: tuple[tuple[int, int], ...] = ((2, 5), (3, 4)), **parts: object) -> float:
    """How far from the target's law the enumerated images are at worst; parts as check_law's."""
    kept = certificate.SIZES, certificate.LONG_SIZES, certificate.SAMPLINGS, certificate.COUNTED
    certificate.SIZES = tuple((*size, 0.0) for size in sizes)
    certificate.LONG_SIZES, certificate.COUNTED = (), 50
    certificate.SAMPLINGS = (Sampling(), Sampling(temperature=0.7, cfg_scale=1.0))
    try:
        result = lantern.check_law(**parts)
    finally:
        certificate.SIZES, certificate.LONG_SIZES, certificate.SAMPLINGS, certificate.COUNTED = kept
    assert all(case.ways == ["enumerated"] for case in result.results.values())
    return result.deviation
