"""Nearest codes of a codebook, in the metric in which the decoder uses it."""

import torch
from torch import Tensor

from lantern.errors import check_least, check_whole

SPARE = 32  # candidates beyond k, for ties


def number_of_neighbours(codebook: Tensor, k: float) -> int:
    """k as a number of codes. A k below 1 is a share of the codebook: LANTERN's 1,000 of 16,384 codes are 0.061."""
    k = round(k * len(codebook)) if 0 < k < 1 else k
    check_whole("acceptance", k=k)
    return int(k)


def nearest(codebook: Tensor, k: int, chunk: int = 1024) -> Tensor:  # [V, C] -> [V, k]
    """Indices of the k nearest codes by Euclidean distance, nearest first, ties by index, the code itself left out."""
    size = len(codebook)
    check_least("acceptance", 0, size - 1, k=k)
    rows = []
    for start in range(0, size, chunk):
        own = torch.arange(start, min(start + chunk, size), device=codebook.device)
        distance = torch.cdist(codebook[own].double(), codebook.double())
        distance[own - start, own] = torch.inf
        rows.append(_smallest(distance, k))
    return torch.cat(rows)


def _smallest(distance: Tensor, k: int) -> Tensor:  # [M, V] -> [M, k]
    """Indices of the k smallest, ties to the lower; sorts k + SPARE candidates, whole rows where ties go beyond."""
    few = distance.topk(min(k + SPARE, distance.shape[1]), dim=1, largest=False)
    by_index = few.indices.sort(dim=1)
    order = few.values.gather(1, by_index.indices).sort(dim=1, stable=True).indices[:, :k]
    found = by_index.values.gather(1, order)
    tied = (few.values[:, max(k, 1) - 1] == few.values[:, -1]).nonzero()[:, 0]
    found[tied] = distance[tied].sort(dim=1, stable=True).indices[:, :k]
    return found


def distances(codebook: Tensor, neighbours: Tensor) -> Tensor:  # [V, C], [V, K] -> [V, K]
    """Euclidean distance of each code to its neighbours, computed rank by rank to avoid a [V, K, C] tensor."""
    exact = codebook.double()
    return torch.stack([(exact - exact[ranked]).norm(dim=1) for ranked in neighbours.T], dim=1)
