"""A Jacobi window that EAGLE's layer refines before the target verifies it. The target's last pass is right where the
tokens it read are unchanged. Where a token has changed since, EAGLE's prediction from the new token, mixed with the old
token's stale feature, is right more often. The first pass of EAGLE's layer also reads the tokens just committed; each
further pass reads the tokens and features that the pass before it refined. Ours; nearest are 2602.21224, which drafts
from the features of discarded drafts, and the windows of SJD2 (2510.08994) and SJD++ (2512.07503)."""

from functools import partial
from pathlib import Path
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor

from lantern.drafters.eagle.feature_drafter import FeatureDrafter, FeatureTarget, PairPass
from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.jacobi.branches import Branches
from lantern.drafters.jacobi.jacobi import cut_chain
from lantern.drafters.jacobi.window import KIND, PickingProposals, require_picks, stale_nodes
from lantern.drafters.loading import eagle_layer
from lantern.engine.graphs import Outputs
from lantern.errors import check_least, check_whole
from lantern.runtime.memory import check_nodes
from lantern.sampling import Sampling
from lantern.types import DraftTree, Forward, Proposals, TreeLabel, Verdict


class RefinedJacobi(FeatureDrafter):
    """Implements lantern.types.Drafter, for shared noise. Position k of the window lies k tokens behind the root and
    predicts the token behind itself; the last pass has left a stale feature for the first `seen` of them."""

    name = "refined_jacobi"

    def __init__(
        self, network: EagleNetwork, target: FeatureTarget, sampling: Sampling, length: int, passes: int, share: float,
        branches: int = 0, weights_hash: str = "",
    ) -> None:  # fmt: skip
        """length: of the window, in tokens; passes: of EAGLE's layer over the window, per round; share: weight of
        EAGLE's feature where a token has changed; the stale one has the rest; branches: nodes beside the window."""
        check_whole("drafter", 2, length=length)
        check_whole("drafter", 1, passes=passes)
        check_least("drafter", 0, 1, share=share)
        check_nodes(length, f"drafter.length={length}")
        check_nodes(passes, f"drafter.passes={passes}")
        self.passes, self.share = passes, share
        self._branches = Branches(length, branches, target.vocab_size, target.codebook.device)
        self.num_nodes, self.depth = length + 1 + branches, length
        tree = TreeLabel(f"refined_{length}+{branches}" if branches else f"refined_{length}", KIND)
        super().__init__(network, target, tree, sampling, weights_hash, length + 1, ahead=length)

    def allocate(self, batch_size: int) -> None:
        length, like = self.depth, self.network.fc.weight
        super().allocate(batch_size)
        kinds = 2 if self.network.reads.layers else 1  # features that the head reads, and the layer's if they differ
        shape = kinds, batch_size, self.target.guidance, length, self.network.fc.out_features
        self._stale = like.new_zeros(shape)
        self._read = torch.zeros(batch_size, length, dtype=torch.long, device=like.device)  # by the pass
        self._picks, self._seen = self._read, self._read[:, 0].clone()

    @torch.inference_mode()
    def begin(self, prefill: Forward, rows: Tensor) -> None:
        """Runs the prefix pairs of admitted rows and clears their windows."""
        super().begin(prefill, rows)
        self._stale[:, rows] = self.network.reads.with_head(prefill.features[:, :, -1:]).to(self._stale.dtype)
        for kept in (self._seen, self._read, self._picks):  # of the former image
            kept[rows] = 0

    @torch.inference_mode()
    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        """Refines the stale features of the last pass; the pairs up to the root's are committed to the cache here."""
        proposals = require_picks(proposals, self.name)
        start, seconds, has_graphs = perf_counter(), self.forward_s, self.target.passes.has_graphs
        given = self._picks, self._stale, self._read, self._seen, *(proposals.tables if has_graphs else ())
        settings = self._layer, self.passes, self.share, self.sampling, self.target.cfg_scale, len(given)
        run = partial(self._refined, proposals)
        codes, scores, settled = self.read_pairs(run, roots, self.depth - 1, *given, settings=settings)
        self.forwards += self.passes
        if has_graphs:  # recorded with the laws and the picks
            self.forward_s = seconds + perf_counter() - start
        if self._branches.count:
            return self._branches.tree(roots, tokens_left, codes, scores, settled)
        return cut_chain(tokens_left, torch.cat([roots[:, None], codes[..., 0]], 1))

    def _refined(
        self, proposals: PickingProposals, at: PairPass, committed: Tensor, exact: Tensor, picks: Tensor, stale: Tensor,
        read: Tensor, seen: Tensor, *tables: Tensor,
    ) -> Outputs:  # fmt: skip
        """committed [B, A], exact [B, R, A, D]: the closed pairs, the root's last; of the last pass, by position:
        picks [B, W] behind it, read [B, W] at it, stale [K, B, R, W, D] -> codes behind each position and their scores,
        best first [B, W, ranks], and whether the token that they follow is settled, i.e. as read [B, W]."""
        proposals, start = proposals.over(*tables), perf_counter()
        rotary, mask = at.rotary_and_mask()
        unseen = torch.arange(self.depth, device=seen.device) >= seen[:, None]
        features = stale
        tokens = torch.cat([committed, picks[:, :-1]], 1)
        before = torch.cat([exact, features[-1, :, :, :-1]], 2)
        outputs = at.from_root(self._layer(tokens, before, rotary, mask, at.view))
        for number in range(self.passes):
            if number:  # over the tokens behind the root alone: the committed pairs and the root's output stay
                start, before = perf_counter(), features[-1, :, :, :-1]
                at.view.reserve(at.ahead, at.longest)  # the slots of these tokens, which are overwritten
                window = rotary[:, at.longest :], mask[:, :, at.longest :]
                own = self._layer(picks[:, :-1], before, *window, at.view)
                outputs = torch.cat([outputs[:, :, :1], own], 2)
            tokens = F.pad(picks[:, :-1], (1, 0), value=-1)  # -1: the token read at the root's place was rejected
            settled = (tokens == read) & ~unseen
            share = torch.where(settled, 0.0, self.share).masked_fill(unseen, 1.0)  # [B, W] of EAGLE's features
            features = torch.lerp(stale, outputs, share[:, None, :, None].to(stale.dtype))
            logits = self.target.head(self.target.guide(features[0]))
            self.forward_s += perf_counter() - start
            law = self.sampling.law(logits)
            if self._branches.count:
                codes, scores = proposals.gumbel_topk(law, self._branches.ranks)
            else:
                codes = scores = proposals.pick(law)[..., None]
            picks = codes[..., 0]
        return codes, scores, settled

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        """Keeps the accepted pairs, and the features and picks of the positions behind the verdict's token."""
        kinds = self.network.reads.with_head(forward.features)  # [K, B, R, N, D]
        self.pairs.observe(tree, kinds[-1], verdict)
        assert verdict.picks is not None  # of every verification whose proposals pick
        behind, self._seen = stale_nodes(tree, verdict, self.depth)
        rows = torch.arange(len(behind), device=behind.device)[:, None]
        self._stale = kinds.transpose(2, 3)[:, rows, behind].transpose(2, 3)
        self._read, self._picks = tree.tokens.gather(1, behind), verdict.picks.gather(1, behind)

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        self._stale, self._seen = self._stale[:, rows], self._seen[rows]
        self._read, self._picks = self._read[rows], self._picks[rows]


def load_refined_jacobi(
    checkpoint: str | Path, length: int, passes: int, share: float, target: FeatureTarget, sampling: Sampling,
    branches: int = 0,
) -> RefinedJacobi:  # fmt: skip
    """checkpoint: of an EAGLE drafter, as for load_eagle."""
    network, name = eagle_layer(checkpoint, target)
    return RefinedJacobi(network, target, sampling, length, passes, share, branches, name)
