"""What the verifications of continuous tokens share: how drafts are drawn, and the verdict on a chain of them."""

import torch
from torch import Tensor

from lantern.continuous.gaussian_noise import GaussianNoise
from lantern.errors import LanternError
from lantern.noise import Noise
from lantern.types import DraftTree, Verdict


class LatentProposals:
    """Drafts are drawn as the target draws: mean + sigma e, with the noise of their position and the drafter's mean. A
    position is judged once, so that its e stays independent of all that was committed before."""

    needs_draft_law = False

    def __init__(self, noise: Noise) -> None:
        self._noise = gaussian(noise)

    def normals(self, count: int) -> Tensor:
        """See GaussianNoise."""
        return self._noise.normals(count)

    def sample_scores(self, log_q: Tensor, nodes: Tensor, depth: int) -> Tensor:
        """Raises LanternError, as chosen and coupled do: they serve laws of codes."""
        raise LanternError("this drafter drafts codes and the model's tokens are latents; use drafter=latent_jacobi")

    def topk_scores(self, log_q: Tensor, depth: int) -> Tensor:
        return self.sample_scores(log_q, log_q, depth)

    def redraw_coupled(self, laws: Tensor, former: Tensor, former_laws: Tensor, known: Tensor) -> Tensor:
        return self.sample_scores(laws, known, 0)


def gaussian(noise: Noise) -> GaussianNoise:
    """The noise, if it is Gaussian; LanternError otherwise."""
    if not isinstance(noise, GaussianNoise):
        raise LanternError("this verification judges latents and sampling draws codes; use sampling=latents")
    return noise


def verdict_on_chain(tree: DraftTree, follows: Tensor, recovered: Tensor, picks: Tensor) -> Verdict:
    """follows [B, N]: whether the draft behind each node is accepted; recovered [B, N, C]: what replaces it if not;
    picks [B, N, C]: the target's own token, which a node without a draft is followed by. Raises LanternError for a tree
    with branches."""
    if tree.width is None or tree.width > 1:
        raise LanternError("latents are drafted in chains, this tree branches; use drafter=latent_jacobi")
    last = (~tree.is_padding).sum(1) - 1  # [B]
    order = torch.arange(follows.shape[1], device=follows.device)
    accepted = (follows & (order < last[:, None])).long().cumprod(1).sum(1)
    rows = torch.arange(len(last), device=last.device)
    token = torch.where((accepted < last)[:, None], recovered[rows, accepted], picks[rows, accepted])
    path = torch.where(order <= accepted[:, None], order, -1)
    return Verdict(path, accepted, token, picks)
