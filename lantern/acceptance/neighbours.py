"""Nearest codes of a codebook, in the metric in which the decoder uses it."""

import torch
from torch import Tensor

from lantern.errors import LanternError


def nearest(codebook: Tensor, k: int, chunk: int = 1024) -> Tensor:  # [V, C] -> [V, k]
    """Indices of the k nearest codes by Euclidean distance, nearest first, the code itself left out.

    Ties go to the lower index. Raises LanternError unless 0 <= k < V.
    """
    size = len(codebook)
    if not 0 <= k < size:
        raise LanternError(f"acceptance.k={k} neighbours asked of a codebook of {size}; give 0 <= k < {size}")
    rows = []
    for start in range(0, size, chunk):
        own = torch.arange(start, min(start + chunk, size), device=codebook.device)
        distance = torch.cdist(codebook[own].double(), codebook.double())
        distance[own - start, own] = torch.inf
        rows.append(distance.sort(dim=1, stable=True).indices[:, :k])
    return torch.cat(rows)


def distances(codebook: Tensor, neighbours: Tensor) -> Tensor:  # [V, C], [V, K] -> [V, K]
    """Euclidean distance of each code to its neighbours, rank by rank, so that no [V, K, C] is held."""
    exact = codebook.double()
    return torch.stack([(exact - exact[ranked]).norm(dim=1) for ranked in neighbours.T], dim=1)
