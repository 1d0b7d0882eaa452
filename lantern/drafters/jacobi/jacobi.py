"""Drafting without a drafter: a Jacobi window is a chain of tokens proposed by the target's own last pass. SJD
(2410.01699) draws them anew each round; coupled to their former draws (SCD, 2510.24211) they converge, and more of them
are accepted: x_j stays with probability min(1, p'(x_j) / p(x_j)), p and p' its laws in the last two passes, else it is
drawn from norm(max(p' - p, 0)); under shared noise it is argmax(log p' + G_j)."""

import torch
from torch import Tensor

from lantern.drafters.jacobi.window import KIND, Guess, Redraw, RedrawingProposals, Start, Window
from lantern.errors import LanternError
from lantern.sampling import Sampling
from lantern.types import DraftTree, Forward, Proposals, Target, TreeLabel, TreeTopology, Verdict


class Jacobi:
    """Implements lantern.types.Drafter; no network, no drafter forwards."""

    weights_hash = None
    forwards, forward_s = 0, 0.0

    def __init__(
        self, target: Target, length: int, start: Start, redraw: Redraw, sampling: Sampling, name: str = "jacobi"
    ) -> None:  # fmt: skip
        """length: of the window, in tokens."""
        self.window = Window(length, target, start, redraw, sampling)
        self.name, self.tree = name, TreeLabel(f"window_{length}", KIND)
        self.num_nodes, self.depth = length + 1, length
        self.lossless = getattr(redraw, "lossless", True)

    def allocate(self, batch_size: int) -> None:
        self.window.allocate(batch_size)

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        self.window.begin(prefill, rows)

    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        guess = self.window.guess(roots, proposals)
        tokens = torch.cat([roots[:, None], guess.tokens], 1)
        laws = None if guess.laws is None else torch.cat([guess.laws, guess.laws[:, -1:]], 1)
        return cut_chain(tokens_left, tokens, laws)

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        self.window.observe(tree, forward, probs, verdict)

    def keep(self, rows: Tensor) -> None:
        self.window.keep(rows)


def cut_chain(tokens_left: Tensor, tokens: Tensor, laws: Tensor | None = None) -> DraftTree:
    """tokens [B, W + 1], the root first, as a chain cut at the end of each image: tokens_left [B] tokens are left."""
    topology = TreeTopology.chain(tokens.shape[1] - 1, tokens.device)
    if int(tokens_left.min()) >= tokens.shape[1]:
        return topology.tree(tokens, laws)
    return DraftTree(tokens, topology.cut_to(tokens_left), laws, width=topology.width)


def redraw_coupled(proposals: Proposals, laws: Tensor, former: Guess, known: Tensor) -> Tensor:
    """Draws from laws [B, W, V] coupled to the former ones, which the first known [B] positions have: the pick under
    shared noise, by maximal coupling under ratio."""
    former_laws = laws if former.laws is None else former.laws  # not read where they were not kept
    return proposals.redraw_coupled(laws, former.tokens, former_laws, known)


def redraw(proposals: Proposals, laws: Tensor, former: Guess, known: Tensor) -> Tensor:
    """Draws from laws [B, W, V], independent of the former ones."""
    if not isinstance(proposals, RedrawingProposals):
        raise LanternError(
            "drafter=sjd draws its window anew each round, shared noise and temperature=0 allow one draw; use "
            "drafter=jacobi, or verification=ratio at a temperature above 0"
        )
    return proposals.redraw(laws)


class KeepConfident:
    """SJD++ (2512.07503) as a third party implements it, PathSpec's code: a former token stays where its probability is
    above `threshold` times what it was, else the position is drawn anew. Kept tokens are no draws from the law they are
    judged by, so that the output law changes; redraw_coupled keeps as many as can be kept without that."""

    lossless = False

    def __init__(self, threshold: float) -> None:
        if not threshold >= 0:
            raise LanternError(f"drafter.redraw.threshold={threshold} is a ratio of probabilities; give 0 or more")
        self.threshold = threshold

    def __call__(self, proposals: Proposals, laws: Tensor, former: Guess, known: Tensor) -> Tensor:
        if former.laws is None:
            return redraw(proposals, laws, former, known)  # a verification with one draw: refused there
        now, then = (part.gather(2, former.tokens[..., None])[..., 0] for part in (laws, former.laws))
        stays = (now > self.threshold * then) & (torch.arange(laws.shape[1], device=laws.device) < known[:, None])
        return torch.where(stays, former.tokens, redraw(proposals, laws, former, known))
