"""SJD-PAC's proactive drafting (2603.18599): half the rounds of a Jacobi window commit only the next token, so
runners-up are drafted at its first positions. SJD-PAC's adaptive continuation, which keeps guesses behind a rejection
by coupling, is the window's redraw here. Ours also works under shared noise, and attaches runners-up to the window as
leaves: tokens behind them would be drawn from the same laws as those behind the window's own."""

import torch
from torch import Tensor

from lantern.drafters.jacobi.jacobi import Jacobi
from lantern.drafters.jacobi.window import KIND, Redraw, Start
from lantern.errors import check_whole
from lantern.runtime.memory import check_nodes
from lantern.sampling import Sampling
from lantern.types import PADDING, DraftTree, Proposals, Target, TreeLabel, TreeTopology


class ProactiveJacobi(Jacobi):
    """Implements lantern.types.Drafter: a Jacobi window with runners-up at its first positions."""

    def __init__(
        self, target: Target, length: int, levels: int, width: int, start: Start, redraw: Redraw, sampling: Sampling,
        name: str = "sjd_pac",
    ) -> None:  # fmt: skip
        """length: of the window, in tokens; levels: how many of its first positions (all, if there are fewer) have
        `width` alternative tokens each."""
        check_whole("drafter", 1, length=length, levels=levels)
        check_whole("drafter", 2, width=width)
        check_nodes(length + min(levels, length) * (width - 1), f"drafter.levels={levels}, width={width}")
        super().__init__(target, length, start, redraw, sampling, name)
        self.levels, self.width = levels, width = min(levels, length), width
        self.tree = TreeLabel(f"window_{length}+{levels}x{width - 1}", KIND)
        beside = (level for level in range(levels) for _ in range(width - 1))
        self._parents = (*range(-1, length), *beside)
        self.num_nodes = len(self._parents)

    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        guess, length = self.guess(roots, proposals), self.depth
        others, exist = self._runners_up(guess.tokens, proposals)
        tokens = torch.cat([roots[:, None], guess.tokens, others], 1)
        topology = TreeTopology.of(self._parents, roots.device)
        if int(tokens_left.min()) > length and not proposals.needs_draft_law:
            return topology.tree(tokens)
        parents = topology.cut_to(tokens_left)
        if guess.laws is None:
            return DraftTree(tokens, parents, width=topology.width)
        parents[:, length + 1 :].masked_fill_(~exist, PADDING)  # codes outside the support of q; see StaticTree
        none = guess.laws[:, -1:].expand(-1, 1 + others.shape[1], -1)  # leaves have no children to be drawn
        return DraftTree(tokens, parents, torch.cat([guess.laws, none], 1), width=topology.width)

    def _runners_up(self, guessed: Tensor, proposals: Proposals) -> tuple[Tensor, Tensor]:
        """guessed [B, W] -> the runners-up at each of the first positions, best first [B, levels (width - 1)], and
        which of them have any mass."""
        positions = torch.arange(self.levels, device=guessed.device)
        log_q = self.laws[:, : self.levels].log().scatter(2, guessed[:, : self.levels, None], -torch.inf)
        scores = [proposals.sample_scores(log_q[:, d : d + 1], positions[d : d + 1], d) for d in range(self.levels)]
        best = torch.cat(scores, 1).topk(self.width - 1, dim=-1)
        return best.indices.flatten(1), (best.values > -torch.inf).flatten(1)
