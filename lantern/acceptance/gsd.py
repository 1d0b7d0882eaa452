"""GSD (2508.07747): a token is judged by its cluster C, the codes nearest in rank of p that are also close in p and in
the codebook: accepted with probability min(1, p(C) / q(C)); otherwise a token is drawn from norm(max(p - q, 0)). Under
shared noise x takes its cluster's mass. The paper judges a window of SJD (method=gsd_sjd); the rule takes any draft."""

import torch
from torch import Tensor

from lantern.acceptance.committed import point_mass
from lantern.acceptance.relaxed import relaxed
from lantern.errors import LanternError, check_whole
from lantern.types import Site


class GSD:
    """Clusters are dynamic: they depend on the law p. g = 1 is exact."""

    name = "gsd"
    verification = "ratio"  # by default, as in the paper

    def __init__(self, codebook: Tensor, g: int, max_gap: float, max_distance: float) -> None:
        """codebook [V, C]; g, 1 <= g <= V: codes nearest in rank; a cluster keeps those whose p differs from x's by
        less than max_gap and whose squared distance to x is less than max_distance; both limits above 0."""
        check_whole("acceptance", 1, len(codebook), g=g)
        for name, value in (("max_gap", max_gap), ("max_distance", max_distance)):
            if not value > 0:
                raise LanternError(f"acceptance.{name}={value} leaves every cluster empty; give a value above 0")
        self.codebook, self.g, self.max_gap, self.max_distance = codebook, g, max_gap, max_distance
        self.lossless = g == 1
        self.parameters = {"g": g, "max_gap": max_gap, "max_distance": max_distance}

    def cluster(self, p: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """p [B, V], x [B] -> codes [B, G], whether each belongs to x's cluster [B, G]; equal p rank by code."""
        index, size = x[:, None], p.shape[1]
        own = p.gather(1, index)
        ahead = (p > own) | ((p == own) & (torch.arange(size, device=p.device) < index))
        first = (ahead.sum(1, keepdim=True) - self.g // 2).clamp(0, size - self.g)
        laws = p[:1] if p.stride(0) == 0 else p  # of one law, expanded, one order
        order = laws.sort(dim=1, descending=True, stable=True).indices
        codes = order.expand(len(p), -1).gather(1, first + torch.arange(self.g, device=p.device))
        apart = (self.codebook[codes] - self.codebook[index]).square().sum(-1)
        return codes, ((p.gather(1, codes) - own).abs() < self.max_gap) & (apart < self.max_distance)

    def relax(self, p: Tensor, x: Tensor) -> Tensor:
        codes, belongs = self.cluster(p, x)
        mass = p.gather(1, codes) * belongs
        return p.scatter_add(1, codes, -mass).scatter_add(1, x[:, None], mass.sum(1, keepdim=True))

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        codes, belongs = self.cluster(p, x)
        draft = point_mass(x, p) if q is None else q
        target_mass, draft_mass = ((law.gather(1, codes) * belongs).sum(1) for law in (p, draft))
        accept = target_mass / draft_mass.clamp(min=torch.finfo(p.dtype).tiny)
        return accept.clamp(max=1), relaxed(p, q, x)[1]
