"""Fréchet distance (1706.08500), kernel distance (1801.01401), precision and recall (1904.06991) of features: those of
whole sets by torch-fidelity, and forms that are fast enough for hundreds of resamples."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

NEIGHBOURHOOD = 3  # the radius of a point of a manifold is the distance to this neighbour


def frechet_distance(generated: Tensor, real: Tensor) -> float:
    """Distance of the two Gaussians fitted to features [N, F]; biased upwards by about 1/N, so compare at equal N."""
    from torch_fidelity.metric_fid import KEY_METRIC_FID, fid_features_to_statistics, fid_statistics_to_metric

    statistics = [fid_features_to_statistics(features) for features in (generated, real)]
    return fid_statistics_to_metric(*statistics, verbose=False)[KEY_METRIC_FID]


class FrechetTo:
    """frechet_distance to real features [M, F]. With fewer points than features no covariance matrix is formed."""

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


def prompt_labels(prompts: Sequence[str], num_references: int) -> tuple[Tensor, Tensor]:
    """The number of each image's prompt text [N], and of each real image's [M], prompts cycling."""
    numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
    labels = torch.tensor([numbers[prompt] for prompt in prompts])
    return labels, labels[torch.arange(num_references) % len(labels)]


def kernel_distance(generated: Tensor, real: Tensor, labels: Tensor, real_labels: Tensor) -> float:
    everyone = torch.ones(1, len(generated), dtype=torch.bool)
    return float(kernel_distances(generated, everyone, real, labels, real_labels))


def kernel_moves(pair: Tensor, sides: Sequence[Tensor], real: Tensor, prompts: Sequence[str]) -> list[float]:
    """Kernel distance of one side less the other's, swap by swap. pair [2N, F], sides: two of indices [S, N]."""
    labels, real_labels = prompt_labels(prompts, len(real))
    distances = []
    for side in sides:
        chosen = torch.zeros(len(side), len(pair), dtype=torch.bool).scatter_(1, side, True)
        distances.append(kernel_distances(pair, chosen, real, labels.repeat(2), real_labels))
    return (distances[0] - distances[1]).tolist()


def kernel_distances(features: Tensor, chosen: Tensor, real: Tensor, labels: Tensor, real_labels: Tensor) -> Tensor:
    """Squared maximum mean discrepancies [S] under the cubic kernel, unbiased and so possibly negative, between subsets
    of features [N, F], chosen [S, N] of bool, and all real ones [M, F]. labels [N], [M]: numbers of the images' texts.

    Compares two mixtures over texts, each weighted by its share of the images: the mean kernel of two independent draws
    of one mixture, plus that of the other, less twice that of a draw of each. Two draws of one text are two of its
    images, never one twice. Where either side has a single image of a text, pairs within that text are left out on all
    sides.
    """
    kinds = int(torch.cat([labels, real_labels]).max()) + 1
    made = _Side(features, chosen.to(features.dtype), labels, one_hot(labels, kinds).to(features.dtype))
    everyone = torch.ones(1, len(real), dtype=features.dtype, device=real.device)
    known = _Side(real, everyone, real_labels, one_hot(real_labels, kinds).to(features.dtype))
    counted = ((made.counts > 1) & (known.counts > 1)).to(features.dtype)  # [S, K] texts with pairs of their own
    return (
        _mean_kernel(made, made, counted) - 2 * _mean_kernel(made, known, counted) + _mean_kernel(known, known, counted)
    )


class _Side(NamedTuple):
    features: Tensor  # [N, F]
    weights: Tensor  # [S, N]
    labels: Tensor  # [N]
    texts: Tensor  # [N, K] the labels, one-hot

    @property
    def counts(self) -> Tensor:
        """[S, K]"""
        return self.weights @ self.texts


def _mean_kernel(one: _Side, other: _Side, counted: Tensor) -> Tensor:
    """[S]: over the pairs of an image of each side that have different texts, or a text that is counted [S, K]."""
    kernel, share = cubic_kernel(one.features, other.features), counted
    if one is other:  # an image's pair with itself is left out, and its text's other pairs weigh more by that
        kernel.fill_diagonal_(0)
        share = counted * one.counts / (one.counts - 1).clamp(min=1)
    unlike = kernel.masked_fill(one.labels[:, None] == other.labels, 0)  # [N, M]
    apart = ((one.weights @ unlike) * other.weights).sum(1)
    own = ((one.weights @ (kernel - unlike)) * other.weights) @ other.texts  # [S, K]
    pairs = one.weights.sum(1) * other.weights.sum(1) - (one.counts * other.counts * (1 - counted)).sum(1)
    return (apart + (own * share).sum(1)) / pairs


def precision_recall(generated: Tensor, real: Tensor) -> tuple[float, float]:
    """Share of generated images within the real manifold, and of real ones within the generated manifold."""
    from torch_fidelity.metric_prc import KEY_METRIC_PRECISION, KEY_METRIC_RECALL, prc_features_to_metric

    quiet = {"verbose": False, "save_cpu_ram": True}
    found = prc_features_to_metric(generated, real, prc_neighborhood=NEIGHBOURHOOD, **quiet)
    return found[KEY_METRIC_PRECISION], found[KEY_METRIC_RECALL]


class Manifolds:
    """Precision and recall of subsets of features [N, F] against real ones [M, F]; all distances are computed once."""

    def __init__(self, features: Tensor, real: Tensor) -> None:
        self._own, self._across = torch.cdist(features, features), torch.cdist(features, real)
        self._real_radius = _radius(torch.cdist(real, real))

    def __call__(self, chosen: Tensor, kept: Tensor | None = None) -> tuple[float, float]:
        """chosen: indices [n] of features, kept: of the real ones that recall counts, or None for all -> share of the
        chosen in the manifold of all real ones, share of the real ones in theirs."""
        across, radius = self._across[chosen], _radius(self._own[chosen][:, chosen])  # [n, M], [n]
        precision = (across <= self._real_radius).any(1).double().mean()
        counted = across if kept is None else across[:, kept]
        recall = (counted <= radius[:, None]).any(0).double().mean()
        return float(precision), float(recall)


def _radius(distances: Tensor) -> Tensor:  # [n, n] -> [n]; a point is its own first neighbour
    return distances.kthvalue(min(NEIGHBOURHOOD + 1, len(distances)), dim=1).values
