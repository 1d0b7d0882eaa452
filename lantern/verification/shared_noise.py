"""Shared noise for any tree: the token at a position is argmax(log p + G), with one Gumbel table G per image. So the
tokens are those of plain decoding with G, whatever was drafted. Drafter-invariant speculative decoding (Daliri et al.,
2408.07978; ERSD, 2504.15475), with several drafts OpenReview GJbrk55Bt8; in Jacobi windows SCD (2510.24211). Greedy
decoding: G = 0."""

import torch
from torch import Tensor

from lantern.acceptance.relaxed import Relaxation
from lantern.errors import LanternError
from lantern.noise import PICK_SPREAD, Noise, StoredPicks, gumbel_argmax, gumbel_topk
from lantern.types import Abilities, AcceptanceRule, DraftTree, Verdict


class GumbelScores:
    """Scores children by log q + G: the codes that the target would pick under the same noise if q were its law."""

    def __init__(self, noise: Noise | StoredPicks) -> None:
        self._noise = noise

    def sample_scores(self, log_q: Tensor, nodes: Tensor | None, depth: int) -> Tensor:
        """log_q [B, W, V] of nodes at this depth -> log q + G of the position behind them."""
        depths = torch.full((len(log_q), 1), depth, device=log_q.device)
        return log_q + self._noise.noise_at_depths(depths).log()

    def topk_scores(self, log_q: Tensor, depth: int) -> Tensor:
        """-> log of the estimated probability that the target picks each code."""
        return (self.sample_scores(log_q, None, depth) / PICK_SPREAD).log_softmax(-1)


class SharedProposals(GumbelScores):
    """Redraws a window by the target's picks; q is not needed."""

    needs_draft_law = False

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return self._noise.tables if isinstance(self._noise, Noise) else self._noise

    def over(self, *tables: Tensor) -> "SharedProposals":
        return SharedProposals(StoredPicks(*tables)) if tables else self

    def redraw_coupled(self, laws: Tensor, former: Tensor, former_laws: Tensor, known: Tensor) -> Tensor:
        return self.pick(laws)

    def pick(self, laws: Tensor) -> Tensor:
        """laws [B, W, V] of the positions behind the root -> the picks under them [B, W]; equal laws, equal picks."""
        return gumbel_argmax(laws, self._noise.noise_of_chain(laws.shape[1]))

    def gumbel_topk(self, laws: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """laws [B, W, V] of the positions behind the root -> the picks under them and the runners-up, with log p + G up
        to a constant, best first: [B, W, count] each."""
        return gumbel_topk(laws, self._noise.noise_of_chain(laws.shape[1]), count)


class SharedNoise:
    """Implements lantern.types.Verification for lossless rules and Relaxations."""

    name = "shared_noise"
    head_s = 0.0
    proposals = SharedProposals
    abilities = Abilities(tosses_coins=False, picks_by_noise=True)

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict:
        """probs p [B, N, V]. Accepts the deepest path on which every child is its parent's pick; of equally deep
        paths, the one that ends at the earliest node."""
        return Verdict(*self.decided(tree, probs, rule, noise))

    def decided(
        self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise | StoredPicks
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tensors of the Verdict; reads no values on the host if the noise is stored."""
        is_chain = tree.topology and tree.topology.width < 2
        weights = noise.noise_of_chain(tree.tokens.shape[1]) if is_chain else noise.noise_at_depths(tree.depths)
        pick = gumbel_argmax(probs, weights)  # [B, N] from [B, N, V] each
        parents, drafted = tree.parents[:, 1:].clamp(min=0), tree.tokens[:, 1:]  # the root is committed
        if rule.lossless:
            rejected = pick.gather(1, parents) != drafted  # [B, N - 1]
        elif not isinstance(rule, Relaxation):
            raise LanternError(
                f"verification=shared_noise needs a law to pick from, acceptance={rule.name} names none; use "
                "verification=ratio at a temperature above 0"
            )
        else:
            index = parents[..., None].expand(-1, -1, probs.shape[-1])
            law, weights = probs.gather(1, index), weights.expand_as(probs).gather(1, index)
            p_tilde = rule.relax(law.flatten(0, 1), drafted.flatten()).view_as(law)
            rejected = gumbel_argmax(p_tilde, weights) != drafted  # a child is accepted if its own p~ picks it
        rejected = rejected if tree.topology else rejected | tree.is_padding[:, 1:]
        best = deepest(tree, rejected)
        accepted, token = tree.depths.gather(1, best)[:, 0], pick.gather(1, best)[:, 0]
        return tree.path_to(best[:, 0]), accepted, token, pick


def deepest(tree: DraftTree, rejected: Tensor) -> Tensor:
    """rejected [B, N - 1], but for the root -> the first of the deepest nodes [B, 1] with none rejected on its path."""
    is_cut = (tree.ancestors[..., 1:] & rejected[:, None]).any(-1)  # [B, N]
    return tree.depths.masked_fill(is_cut, -1).argmax(1, keepdim=True)
