"""Fréchet distance (1706.08500), kernel distance (1801.01401), precision and recall (1904.06991) of features, of a set
and of hundreds of its subsets; equal to torch-fidelity's. Pairs of images are in memory a block at a time."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

NEIGHBOURHOOD = 3  # the radius of a point of a manifold is the distance to this neighbour
KNOWN_NEIGHBOURS = 32  # stored per point: enough for its radius in nearly every subset
ROWS, COLUMNS = 2048, 4096  # of a block of pairs


class Gaussian(NamedTuple):
    mean: Tensor  # [F]
    covariance: Tensor  # [F, F]


class FrechetTo:
    """Fréchet distance between the Gaussian fitted to features [N, F] and the real one, fitted to real features [M, F]
    or given. Biased upwards by about 1/N, so compare at equal N. Of fewer points than features no matrix is formed."""

    def __init__(self, real: Tensor | Gaussian) -> None:
        if isinstance(real, Tensor) and len(real) < real.shape[1]:
            self._mean, spread = _centred(real)
            self._trace, self._half = spread.square().sum(), spread.T  # [F, M], else [F, F]
        else:
            self._mean, covariance = real if isinstance(real, Gaussian) else fitted(real)
            values, vectors = torch.linalg.eigh(covariance)  # whose positive root is the half
            self._trace, self._half = covariance.trace(), (vectors * values.clamp(min=0).sqrt()) @ vectors.T

    def __call__(self, made: Tensor | Gaussian) -> float:
        if isinstance(made, Tensor) and len(made) < made.shape[1]:
            mean, own = _centred(made)
            trace = own.square().sum()
            seen = own @ self._half  # its singular values are the roots of the eigenvalues of the covariances' product
            small = seen @ seen.T if len(seen) < seen.shape[1] else seen.T @ seen
        else:
            mean, covariance = made if isinstance(made, Gaussian) else fitted(made)
            trace, small = covariance.trace(), self._half.T @ covariance @ self._half
        shared = torch.linalg.eigvalsh(small).clamp(min=0).sqrt().sum()
        return float((mean - self._mean).square().sum() + trace + self._trace - 2 * shared)


def fitted(features: Tensor) -> Gaussian:
    """The Gaussian of features [N, F]."""
    mean, scatter = _moments(features)
    return Gaussian(mean, scatter / (len(features) - 1))


def parts_without(features: Tensor, groups: Tensor, count: int) -> Iterator[Tensor | Gaussian]:
    """FrechetTo's argument for features [N, F] without each of `count` groups [N] in turn. A group's moments are
    subtracted from those of the whole set, so no subset is summed again."""
    if len(features) < features.shape[1]:
        yield from (features[groups != group] for group in range(count))
        return
    mean, scatter = _moments(features)
    for group in range(count):
        part = features[groups == group].double() - mean
        left = len(features) - len(part)
        shift = -part.sum(0) / left
        covariance = (scatter - part.T @ part - left * torch.outer(shift, shift)) / (left - 1)
        yield Gaussian(mean + shift, covariance)


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """The mean [F] of features [N, F] and their sum of squares about it [F, F], in float64."""
    mean = torch.stack([part.double().sum(0) for part in features.split(ROWS)]).sum(0) / len(features)
    scatter = mean.new_zeros(len(mean), len(mean))
    for part in features.split(ROWS):
        centred = part.double() - mean
        scatter += centred.T @ centred
    return mean, scatter


def _centred(features: Tensor) -> tuple[Tensor, Tensor]:
    """features [N, F] -> their mean [F], and the centred features [N, F] scaled so that X^T X is the covariance."""
    mean = features.double().mean(0)
    return mean, (features - mean) / (len(features) - 1) ** 0.5


def cubic_kernel(x: Tensor, y: Tensor) -> Tensor:  # [N, F], [M, F] -> [N, M]
    """(x y^T / F + 1)^3, the kernel of KID."""
    root = (x @ y.T).div_(x.shape[1]).add_(1)
    return root * root * root  # a power is slower


def kernel_distances(
    features: Tensor, chosen: Tensor, real: Tensor, real_chosen: Tensor, labels: Tensor, real_labels: Tensor
) -> Tensor:
    """Squared maximum mean discrepancies [S] under the cubic kernel, unbiased and so possibly negative, between subsets
    of features [N, F], chosen [S, N] of bool, and of real ones [M, F], chosen [S, M], or [1, M] for the same subset.
    labels [N], [M]: numbers of the images' texts.

    Compares two mixtures over texts, each weighted by its share of the images: the mean kernel of two independent draws
    of one mixture, plus that of the other, less twice that of a draw of each. Two draws of one text are two of its
    images, never one twice. Where either side has a single image of a text, pairs within that text are left out on all
    sides.
    """
    kinds = int(torch.cat([labels, real_labels]).max()) + 1
    made, known = _Side.of(features, chosen, labels, kinds), _Side.of(real, real_chosen, real_labels, kinds)
    paired = ((made.counts > 1) & (known.counts > 1)).double()  # [S, K] texts with pairs of their own
    return _mean_kernel(made, made, paired) - 2 * _mean_kernel(made, known, paired) + _mean_kernel(known, known, paired)


class _Side(NamedTuple):
    features: Tensor  # [N, F]
    weights: Tensor  # [S, N]
    labels: Tensor  # [N]
    counts: Tensor  # [S, K] of the chosen images of each text

    @classmethod
    def of(cls, features: Tensor, chosen: Tensor, labels: Tensor, kinds: int) -> "_Side":
        weights = chosen.double()
        return cls(features, weights, labels, weights.new_zeros(len(weights), kinds).index_add_(1, labels, weights))


def _mean_kernel(one: _Side, other: _Side, counted: Tensor) -> Tensor:
    """[S] mean kernel over pairs, one image from each side, of different texts or of the same counted text [S, K]."""
    apart, own = counted.new_zeros(len(counted)), torch.zeros_like(counted)  # [S], [S, K]
    for rows, columns in _blocks(one.features, other.features):
        kernel = cubic_kernel(one.features[rows].double(), other.features[columns].double())
        if one is other:  # leaves out pairs of an image with itself; `share` gives the text's other pairs their weight
            offset = rows.start - columns.start
            if -len(kernel) < offset < kernel.shape[1]:
                kernel.diagonal(offset).zero_()
        weights, others = one.weights[:, rows], other.weights[:, columns]
        if torch.isin(one.labels[rows], other.labels[columns]).any():
            alike = one.labels[rows, None] == other.labels[columns]
            within = (weights @ kernel.masked_fill(~alike, 0)) * others
            own.index_add_(1, other.labels[columns], within.expand(len(counted), -1))
            kernel.masked_fill_(alike, 0)
        apart += ((weights @ kernel) * others).sum(1)
    share = counted * one.counts / (one.counts - 1).clamp(min=1) if one is other else counted
    pairs = one.weights.sum(1) * other.weights.sum(1) - (one.counts * other.counts * (1 - counted)).sum(1)
    return (apart + (own * share).sum(1)) / pairs


class Manifolds:
    """Precision and recall of subsets of features [N, F] against real ones [M, F]."""

    def __init__(self, features: Tensor, real: Tensor) -> None:
        self._features, self._real = features, real
        self._real_radius = _nearest(real, real, NEIGHBOURHOOD + 1)[0][:, -1]  # a point is its own first neighbour
        self._near, self._neighbours = _nearest(features, features, KNOWN_NEIGHBOURS)  # [N, K]

    def __call__(self, chosen: Tensor, kept: Tensor) -> Tensor:
        """chosen: bool [S, N]; kept: bool [S, M] or [1, M], the real points that recall counts -> [S, 2]: precision,
        the share of chosen in the manifold of all real; recall, the share of kept in the manifold of chosen."""
        radius = torch.stack([self._radius(subset) for subset in chosen])  # [S, N]
        widest = radius.amax(0)
        inside = torch.zeros(len(self._features), dtype=torch.bool)
        covered = torch.zeros(len(chosen), len(self._real), dtype=torch.bool)
        for rows, columns in _blocks(self._features, self._real):
            apart = _squared_distances(self._features[rows], self._real[columns])
            inside[rows] |= (apart <= self._real_radius[columns]).any(1)
            point, other = (apart <= widest[rows, None]).nonzero(as_tuple=True)  # few pairs, whatever the subset
            close = apart[point, other]
            for number in range(len(chosen)):
                covered[number, columns.start + other[close <= radius[number, rows][point]]] = True
        precision = (chosen & inside).sum(1) / chosen.sum(1).double()
        return torch.stack([precision, (covered & kept).sum(1) / kept.sum(1).double()], 1)

    def _radius(self, subset: Tensor) -> Tensor:
        """[N] squared radii within a subset, bool [N]; -1 for points outside the subset."""
        size = min(NEIGHBOURHOOD + 1, int(subset.sum()))
        place = (subset[self._neighbours].cumsum(1) < size).sum(1, keepdim=True)
        radius = self._near.gather(1, place.clamp(max=self._near.shape[1] - 1))[:, 0]
        short = (subset & (place[:, 0] == self._near.shape[1])).nonzero()[:, 0]  # too few of their neighbours are in it
        if len(short):
            radius[short] = _nearest(self._features[short], self._features[subset], size)[0][:, -1]
        return radius.masked_fill(~subset, -1.0)


def _nearest(points: Tensor, others: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Of each point [N, F], the squared distances [N, K] to its nearest K = count others [M, F], and their indices."""
    found: list[tuple[Tensor, Tensor]] = []
    for rows, columns in _blocks(points, others):
        apart = _squared_distances(points[rows], others[columns])
        near, index = apart.topk(min(count, apart.shape[1]), largest=False)
        index += columns.start
        if columns.start:
            near, index = (torch.cat(both, 1) for both in zip(found.pop(), (near, index), strict=True))
            near, order = near.topk(min(count, near.shape[1]), largest=False)
            index = index.gather(1, order)
        found.append((near, index))
    near, index = zip(*found, strict=True)
    return torch.cat(near), torch.cat(index)


def _squared_distances(x: Tensor, y: Tensor) -> Tensor:  # [N, F], [M, F] -> [N, M]
    x, y = x.double(), y.double()
    products = torch.addmm(y.square().sum(1), x, y.T, alpha=-2)
    return products.add_(x.square().sum(1)[:, None]).clamp_(min=0)


def _blocks(one: Tensor, other: Tensor) -> Iterator[tuple[slice, slice]]:
    """All pairs of rows of two tensors, block by block; the blocks of a row follow one another."""
    for row in range(0, len(one), ROWS):
        for column in range(0, len(other), COLUMNS):
            yield slice(row, min(row + ROWS, len(one))), slice(column, min(column + COLUMNS, len(other)))
