"""Drafting without a drafter: a Jacobi window is a chain of tokens proposed by the target's own last pass. SJD
(2410.01699) redraws them each round. SCD (2510.24211) couples new draws to former ones, so that they converge and more
are accepted: x_j stays with probability min(1, p'(x_j) / p(x_j)), where p and p' are its laws in the last two passes,
else it is drawn from norm(max(p' - p, 0)). Under shared noise it is argmax(log p' + G_j)."""

import torch
from torch import Tensor

from lantern.acceptance.relaxed import normalise
from lantern.certificates import is_ours
from lantern.drafters.jacobi.window import KIND, Guess, Redraw, RedrawingProposals, Start, Unread, stale_nodes
from lantern.errors import LanternError, check_whole
from lantern.runtime.memory import check_nodes
from lantern.sampling import Sampling
from lantern.types import DraftTree, Forward, Proposals, Target, TreeLabel, TreeTopology, Verdict


class Jacobi:
    """Implements lantern.types.Drafter; no network, no drafter forwards. State per batch row: the last pass's laws of
    the positions behind the root, and the former guesses there. `laws` [B, W, V] are those from which this round's
    guesses were drawn."""

    weights_hash = None
    forwards, forward_s = 0, 0.0

    def __init__(
        self, target: Target, length: int, start: Start, redraw: Redraw, sampling: Sampling, name: str = "jacobi"
    ) -> None:  # fmt: skip
        """length: of the window, in tokens."""
        check_whole("drafter", 1, length=length)
        check_nodes(length, f"drafter.length={length}")
        if start is None:
            raise LanternError("drafter.start=null is no way to start; leave it out for the default")
        self.name, self.tree = name, TreeLabel(f"window_{length}", KIND)
        self.num_nodes, self.depth = length + 1, length
        self._target, self._start, self._redraw, self._sampling = target, start, redraw, sampling
        self._start_is_ours, self.lossless = is_ours(start), getattr(redraw, "lossless", is_ours(redraw))

    def allocate(self, batch_size: int) -> None:
        target = self._target
        self._laws = target.codebook.float().new_zeros(batch_size, self.depth, target.vocab_size)
        self._former = Guess(torch.zeros_like(self._laws[..., 0], dtype=torch.long), self._laws)
        self._seen = torch.zeros_like(self._former.tokens[:, 0])

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        """The first window starts from the prefix's law alone."""
        law = self._sampling.law(prefill.logits)
        self._laws = self._laws.to(law.dtype)
        self._laws[rows] = law
        self._seen[rows] = 0

    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        guess = self.guess(roots, proposals)
        tokens = torch.cat([roots[:, None], guess.tokens], 1)
        laws = None if guess.laws is None else torch.cat([guess.laws, guess.laws[:, -1:]], 1)
        return cut_chain(tokens_left, tokens, laws)

    def guess(self, roots: Tensor, proposals: Proposals) -> Guess:
        known = (self._seen - 1).clamp(min=0)  # of the laws that a pass yields, all but the last had a guess
        last = torch.cat([roots[:, None], self._former.tokens], 1).gather(1, known[:, None])[:, 0]
        unread = Unread(self._laws, self._seen, last)
        laws = self._start(unread)
        # drafts are judged as draws from these laws, whatever a start of somebody else returns
        self.laws = laws = laws if self._start_is_ours else normalise(laws.clamp(min=0), unread.laws)
        tokens = self._redraw(proposals, laws, self._former, known)
        self._former = Guess(tokens, laws if proposals.needs_draft_law else None)
        return self._former

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        """Keeps the laws in probs [B, N, V] of the positions behind the verdict's token, and their guesses."""
        nodes, self._seen = stale_nodes(tree, verdict, self.depth)
        rows = torch.arange(len(nodes), device=nodes.device)[:, None]
        nodes = nodes if len(nodes) == 1 else nodes + tree.tokens.shape[1] * rows
        self._laws = probs.flatten(0, 1).index_select(0, nodes.flatten()).unflatten(0, nodes.shape)
        behind = verdict.accepted[:, None] + torch.arange(1, self.depth + 1, device=nodes.device)
        kept, former = behind.clamp(max=self.depth - 1), self._former
        self._former = Guess(former.tokens.gather(1, kept), None if former.laws is None else former.laws[rows, kept])

    def keep(self, rows: Tensor) -> None:
        self._laws, self._seen, former = self._laws[rows], self._seen[rows], self._former
        self._former = Guess(former.tokens[rows], None if former.laws is None else former.laws[rows])


def cut_chain(tokens_left: Tensor, tokens: Tensor, laws: Tensor | None = None) -> DraftTree:
    """tokens [B, W + 1], root first -> a chain, cut at the end of each image, which still needs tokens_left [B]."""
    topology = TreeTopology.chain(tokens.shape[1] - 1, tokens.device)
    if int(tokens_left.min()) >= tokens.shape[1]:
        return topology.tree(tokens, laws)
    return DraftTree(tokens, topology.cut_to(tokens_left), laws, width=topology.width)


def redraw_coupled(proposals: Proposals, laws: Tensor, former: Guess, known: Tensor) -> Tensor:
    """Draws from laws [B, W, V], coupled to former draws, which only the first `known` [B] positions have: the pick
    under shared noise, maximal coupling under ratio."""
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
    """SJD++ (2512.07503) as in PathSpec's code, by a third party: a former token stays if its probability is above
    `threshold` times its former probability, else the position is drawn anew. Kept tokens are not samples of the law
    they are judged against, so the output law changes; redraw_coupled keeps as many as possible without that."""

    lossless = False

    def __init__(self, threshold: float) -> None:
        if not threshold >= 0:
            raise LanternError(f"drafter.redraw.threshold={threshold} is a ratio of probabilities; give 0 or more")
        self.threshold = threshold

    def __call__(self, proposals: Proposals, laws: Tensor, former: Guess, known: Tensor) -> Tensor:
        if former.laws is None:
            return redraw(proposals, laws, former, known)  # raises: such a verification allows one draw
        now, then = (part.gather(2, former.tokens[..., None])[..., 0] for part in (laws, former.laws))
        stays = (now > self.threshold * then) & (torch.arange(laws.shape[1], device=laws.device) < known[:, None])
        return torch.where(stays, former.tokens, redraw(proposals, laws, former, known))
