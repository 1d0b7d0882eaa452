"""Fréchet distance (1706.08500), kernel distance (1801.01401), precision and recall (1904.06991) of features, in forms
that are fast enough for hundreds of resamples; tests/metrics/test_distances.py compares them with torch-fidelity."""

import torch
from torch import Tensor

NEIGHBOURHOOD = 3  # the radius of a point of a manifold is the distance to this neighbour


class FrechetTo:
    """Fréchet distance to the Gaussian fitted to real features [M, F]; biased upwards by about 1/N. With fewer points
    than features no covariance matrix is formed."""

    def __init__(self, real: Tensor) -> None:
        self._mean, spread = _centred(real)
        self._trace = spread.square().sum()
        self._half = spread.T if len(spread) < spread.shape[1] else symmetric_root(spread.T @ spread)  # [F, F or M]

    def __call__(self, features: Tensor) -> float:
        mean, own = _centred(features)
        seen = own @ self._half  # its singular values are the roots of the eigenvalues of the covariances' product
        small = seen @ seen.T if len(seen) < seen.shape[1] else seen.T @ seen
        shared = torch.linalg.eigvalsh(small).clamp(min=0).sqrt().sum()
        return float((mean - self._mean).square().sum() + own.square().sum() + self._trace - 2 * shared)


def _centred(features: Tensor) -> tuple[Tensor, Tensor]:
    """features [N, F] -> their mean [F], and the centred features [N, F] scaled so that X^T X is the covariance."""
    mean = features.mean(0)
    return mean, (features - mean) / (len(features) - 1) ** 0.5


def symmetric_root(matrix: Tensor) -> Tensor:
    """The positive root of a positive semi-definite matrix [F, F]."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T


def cubic_kernel(x: Tensor, y: Tensor) -> Tensor:  # [N, F], [M, F] -> [N, M]
    """(x y^T / F + 1)^3, the kernel of KID."""
    return (x @ y.T / x.shape[1] + 1) ** 3


def kernel_distances(features: Tensor, chosen: Tensor, real: Tensor, labels: Tensor, real_labels: Tensor) -> Tensor:
    """Unbiased squared maximum mean discrepancies [S] between subsets of features [N, F], chosen [S, N] of bool, and
    all real ones [M, F]. Unbiased, so that it may be negative.

    Only pairs of different labels [N], [M] count: an image is not paired with itself, and where every prompt occurs
    once, images of a prompt are never paired among the generated ones, so they must not be among the real ones.
    """
    weights = chosen.to(features.dtype)
    within = _mean_over(weights, cubic_kernel(features, features), _differ(labels, labels), weights)
    everyone = torch.ones_like(weights[:, :1]).expand(-1, len(real))
    across = _mean_over(weights, cubic_kernel(features, real), _differ(labels, real_labels), everyone)
    among = _mean_over(everyone[:1], cubic_kernel(real, real), _differ(real_labels, real_labels), everyone[:1])
    return within - 2 * across + among


def _differ(one: Tensor, other: Tensor) -> Tensor:  # [N], [M] -> [N, M]
    return one[:, None] != other


def _mean_over(rows: Tensor, kernel: Tensor, counted: Tensor, columns: Tensor) -> Tensor:
    """rows [S, N], kernel and counted [N, M], columns [S, M] -> [S]"""
    counted = counted.to(kernel.dtype)
    return ((rows @ (kernel * counted)) * columns).sum(1) / ((rows @ counted) * columns).sum(1)


class Manifolds:
    """Precision and recall of subsets of features [N, F] against real ones [M, F]; all distances are computed once."""

    def __init__(self, features: Tensor, real: Tensor) -> None:
        self._own, self._across = torch.cdist(features, features), torch.cdist(features, real)
        self._real_radius = _radius(torch.cdist(real, real))

    def __call__(self, chosen: Tensor) -> tuple[float, float]:
        """chosen: indices [n] of features -> share of them in the real manifold, share of real ones in theirs."""
        across = self._across[chosen]  # [n, M]
        radius = _radius(self._own[chosen][:, chosen])
        precision = (across <= self._real_radius).any(1).double().mean()
        recall = (across <= radius[:, None]).any(0).double().mean()
        return float(precision), float(recall)


def _radius(distances: Tensor) -> Tensor:  # [n, n] -> [n]; a point is its own first neighbour
    return distances.kthvalue(min(NEIGHBOURHOOD + 1, len(distances)), dim=1).values
