"""A Jacobi window that a small network corrects before the target verifies it. The target's last pass is right where
the tokens that it read are unchanged. Where one has changed, its feature there is stale: the network reads what has
changed and adds to that feature. It reads the window alone, because the stale feature has already read the image: it
has no attention, no cache, and nothing to run over committed tokens. Ours; nearest are 2602.21224, which drafts from
the features of discarded drafts, and the windows of SJD2 (2510.08994)."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lantern.drafters.eagle.feature_drafter import layered, require_layers
from lantern.drafters.jacobi.branches import Branches
from lantern.drafters.jacobi.jacobi import cut_chain
from lantern.drafters.jacobi.window import KIND, PickingProposals, require_picks, stale_nodes
from lantern.drafters.loading import load_shared
from lantern.engine.graphs import Outputs, with_tensors
from lantern.errors import LanternError, check_whole
from lantern.models.llamagen.fused import Norm, linear, precise
from lantern.runtime.memory import check_nodes
from lantern.sampling import Sampling
from lantern.types import DraftTree, Forward, Proposals, Target, TreeLabel, Verdict

BEFORE = 2  # places whose changes of tokens a place reads by itself
ABOVE = 3  # tokens of the row above that it reads: left of the predicted place, above it and right of it
MAX_AGE = 32  # of a place, in places behind the last one that a pass has read; older ones count as this old


class Mixing(nn.Module):
    """gMLP's spatial gating unit (2105.08050), causal: a gate of each place's own on a learned sum over the places up
    to it. Initially it returns zeros."""

    def __init__(self, dim: int, hidden_dim: int, places: int, groups: int, eps: float) -> None:
        """places: most of a window; groups: of channels, each with sums of its own."""
        super().__init__()
        if hidden_dim % groups:
            raise LanternError(f"hidden_dim={hidden_dim} is no multiple of {groups}; give one")
        self.norm = nn.RMSNorm(dim, eps=eps)
        self.gate_value = nn.Linear(dim, 2 * hidden_dim, bias=False)
        self.sums = nn.Parameter(0.02 * torch.randn(groups, places, places))
        self.bias = nn.Parameter(torch.ones(groups, places, 1))
        self.out = nn.Linear(hidden_dim, dim, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, D] -> [B, T, D]
        gate, value = self.gate_value(self.norm(x)).chunk(2, -1)
        return self.out(mixed(gate, value, *self.tables(x.shape[1])))

    def tables(self, count: int) -> tuple[Tensor, Tensor]:
        """For windows of `count` places: the weights of their sums [G, T, T] and what is added to these [G, T, 1]."""
        return self.sums[:, :count, :count].tril(), self.bias[:, :count]


def mixed(gate: Tensor, value: Tensor, sums: Tensor, bias: Tensor) -> Tensor:
    """gate, value [B, T, H], sums [G, T, T], bias [G, T, 1] -> [B, T, H]."""
    groups = value.to(sums.dtype).unflatten(-1, (len(sums), -1)).transpose(1, 2)  # [B, G, T, H / G]
    return F.silu(gate) * (sums @ groups + bias).transpose(1, 2).flatten(2).to(gate.dtype)


class WindowNetwork(nn.Module):
    """Corrects the features of a window's places; initially it changes nothing."""

    command = "python train.py task=window"  # which trains one

    def __init__(
        self, dim: int, hidden_dim: int, num_blocks: int, layers: Sequence[int], length: int, row: int, groups: int = 8,
        eps: float = 1e-5, scaled: bool = False,
    ) -> None:  # fmt: skip
        """layers: of the target, whose inputs are read beside its features; length: of the longest window, in tokens;
        row: tokens of a row of the image; hidden_dim, groups: of Mixing; scaled: embeddings are as large as features,
        from which it learns faster."""
        super().__init__()
        self.layers, self.length, self.row, self.scaled = tuple(layers), length, row, scaled
        self.fc = nn.Linear((2 + BEFORE + ABOVE + 1 + len(self.layers)) * dim, dim)
        self.age = nn.Embedding(MAX_AGE + 1, dim)
        self.blocks = nn.ModuleList(Mixing(dim, hidden_dim, length + 1, groups, eps) for _ in range(num_blocks))
        self.norm = nn.RMSNorm(dim, eps=eps)
        self.out = nn.Linear(dim, dim)
        for weight in (self.age.weight, self.out.weight, self.out.bias):
            nn.init.zeros_(weight)

    @property
    def front(self) -> int:
        """Places before an image, which have no tokens, in the sequences that it reads."""
        return self.row + BEFORE

    def embeddings(self, weight: Tensor) -> Tensor:  # [V, D] -> [V + 1, D]
        """The target's, if `scaled` with a root mean square of 1, and zeros for a place without a token."""
        if self.scaled:
            weight = weight / weight.to(precise(weight)).square().mean().sqrt()
        return torch.cat([weight, weight.new_zeros(1, weight.shape[1])])

    @staticmethod
    def ages(seen: Tensor, length: int) -> Tensor:
        """seen [B]: places of a window that a pass has read -> how far behind these each place lies [B, W + 1]."""
        behind = torch.arange(1, length + 1, device=seen.device) - seen[:, None]
        return F.pad(behind.clamp(0, MAX_AGE), (1, 0))

    def forward(self, inputs: Tensor, age: Tensor) -> Tensor:
        """inputs [B, T, I] of read(), age [B, T] of ages() -> what is added to the stale features [B, T, D]."""
        x = self.fc(inputs) + self.age(age)
        for block in self.blocks:
            x = x + block(x)
        return self.out(self.norm(x))

    def read(
        self, embed_weight: Tensor, tokens: Tensor, at: Tensor, own: Tensor, read: Tensor, stale: Tensor
    ) -> Tensor:
        """What it reads at the window's places, from the one before the root on: [B, T, I].

        embed_weight: of embeddings(); tokens [B, S] of the image by position, V where there is none; at [B]: the place
        before the root; behind it own [B, W]: the root and the guesses, and read [B, W]: the tokens that the last pass
        has read there; stale [B, T, F]: what this pass has left, see CorrectedJacobi.
        """
        count, dim = stale.shape[1], embed_weight.shape[1]
        places = (at[:, None] + torch.arange(count, device=at.device))[..., None]  # [B, T, 1]
        behind = places - torch.arange(1 + BEFORE, device=at.device)
        above = places + torch.arange(ABOVE, device=at.device) - self.row
        known = tokens.scatter(1, places[:, 1:, 0], own).gather(1, torch.cat([behind, above], 2).flatten(1))
        former = tokens.scatter(1, places[:, 1:, 0], read).gather(1, behind.flatten(1))
        embedded, before = (F.embedding(part, embed_weight).unflatten(1, (count, -1)) for part in (known, former))
        now, above = embedded.tensor_split([1 + BEFORE], 2)
        features = F.rms_norm(stale.unflatten(-1, (-1, dim)), (dim,), eps=1e-5)
        return torch.cat([now[:, :, :1], now - before, above, features], 2).flatten(2)


class FusedWindow:
    """A WindowNetwork for decoding, for windows of one length."""

    def __init__(self, network: WindowNetwork, length: int) -> None:
        self.dtype = precise(network.fc.weight)
        self.fc, self.out = linear(network.fc.weight), linear(network.out.weight)
        self.age, self.bias = (network.age.weight + network.fc.bias).to(self.dtype), network.out.bias
        self.norm = Norm(network.norm)
        self.blocks = [FusedMixing(block, length + 1, self.dtype) for block in network.blocks]

    def __call__(self, inputs: Tensor, age: Tensor) -> Tensor:
        """As WindowNetwork.forward."""
        x = self.fc(inputs.flatten(0, 1)).to(self.dtype).add_(self.age[age.flatten()])
        for block in self.blocks:
            x = x.add_(block(x, age.shape))
        return (self.out(self.norm(x)) + self.bias).unflatten(0, age.shape)


class FusedMixing:
    """A Mixing for decoding, for windows of `count` places."""

    def __init__(self, block: Any, count: int, dtype: torch.dtype) -> None:
        self.norm = Norm(block.norm)
        self.gate_value, self.out = linear(block.gate_value.weight), linear(block.out.weight)
        self.sums, self.bias = (part.to(dtype).contiguous() for part in block.tables(count))

    def __call__(self, x: Tensor, shape: torch.Size) -> Tensor:  # [B T, D], of which shape is (B, T) -> [B T, D]
        gate, value = self.gate_value(self.norm(x)).unflatten(0, shape).chunk(2, -1)
        return self.out(mixed(gate, value, self.sums, self.bias).flatten(0, 1))


class CorrectedJacobi:
    """Implements lantern.types.Drafter, for shared noise. Place k of the window lies k tokens behind the root and
    predicts the token behind itself; the last pass has left a stale feature for the first `seen` of them. What it
    leaves at a place are the guided feature and the conditional row's inputs of the network's layers."""

    name = "corrected_jacobi"

    def __init__(
        self, network: WindowNetwork, target: Target, sampling: Sampling, length: int, branches: int = 0,
        weights_hash: str = "",
    ) -> None:  # fmt: skip
        """length: of the window, in tokens; branches: nodes beside the window."""
        check_whole("drafter", 2, length=length)
        check_nodes(length, f"drafter.length={length}")
        if length > network.length:
            raise LanternError(f"drafter.length={length}: this drafter corrects windows of {network.length} at most")
        require_layers(target, network.layers)
        self.network, self.target, self.sampling = network.eval().requires_grad_(False), target, sampling
        self._fused, self.weights_hash = FusedWindow(network, length), weights_hash
        self._branches = Branches(length, branches, target.vocab_size, target.codebook.device)
        self.num_nodes, self.depth = length + 1 + branches, length
        self.tree = TreeLabel(f"corrected_{length}+{branches}" if branches else f"corrected_{length}", KIND)
        self.forwards, self.forward_s = 0, 0.0
        self._embed_weight = network.embeddings(target.embed_weight)

    def allocate(self, batch_size: int) -> None:
        target, length, weight = self.target, self.depth, self.target.embed_weight
        if self.network.layers:
            layered(target).hand_out(self.network.layers)
        self._stale = weight.new_zeros(batch_size, length + 1, (1 + len(self.network.layers)) * weight.shape[1])
        self._tokens = target.empty_tokens(batch_size, self.network.front + target.num_tokens + 2 * (length + 1))
        self._picks, self._read = target.empty_tokens(2, batch_size, length)
        self._seen, self._at = target.empty_tokens(2, batch_size)

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        """Admitted rows have windows that no pass has read."""
        self._stale[rows] = self._left(prefill.features[:, :, -1:])
        self._tokens[rows] = self._read[rows] = self.target.vocab_size
        self._picks[rows] = self._seen[rows] = 0
        self._at[rows] = self.network.front - 1

    def _left(self, features: Tensor) -> Tensor:  # [B, R, T, F] -> [B, T, F]
        dim = self._embed_weight.shape[1]
        return torch.cat([self.target.guide(features[..., :dim]), features[:, 0, :, dim:]], -1)

    @torch.inference_mode()
    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        proposals = require_picks(proposals, self.name)
        start, passes = perf_counter(), self.target.passes
        tables = proposals.tables if passes.has_graphs else ()
        given = roots, self._tokens, self._at, self._picks, self._read, self._seen, self._stale, *tables
        settings = self._fused, self._branches, self.sampling, len(given)
        tokens, parents = passes("window", partial(self._corrected, proposals), *given, settings=settings)
        self.forwards += 1
        self.forward_s += perf_counter() - start
        if self._branches.count:
            return self._branches.cut(tokens, parents, tokens_left)
        return cut_chain(tokens_left, tokens)

    def _corrected(
        self, proposals: PickingProposals, roots: Tensor, tokens: Tensor, at: Tensor, picks: Tensor, read: Tensor,
        seen: Tensor, stale: Tensor, *tables: Tensor,
    ) -> Outputs:  # fmt: skip
        """roots [B]; tokens [B, S], the place before the root at [B]; of the last pass: picks [B, W] behind each place,
        read [B, W] at it, seen [B], stale [B, W + 1, F] -> tokens and parents [B, N] of a tree."""
        ahead = torch.arange(self.depth, device=at.device)
        own = torch.cat([roots[:, None], picks[:, :-1]], 1)
        settled = (own == read) & (ahead < seen[:, None])
        inputs = self.network.read(self._embed_weight, tokens, at, own, read, stale)
        added = self._fused(inputs, self.network.ages(seen, self.depth))[:, 1:]
        base = stale[:, 1:, : self._embed_weight.shape[1]]
        law = self.sampling.law(self.target.head(base + added.masked_fill(settled[..., None], 0.0).to(base.dtype)))
        proposals = proposals.over(*tables)
        if self._branches.count:
            return self._branches.nodes(roots, *proposals.gumbel_topk(law, self._branches.ranks), settled)
        return torch.cat([roots[:, None], proposals.pick(law)], 1), roots

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        """Keeps the accepted tokens, and what the pass has left at the places behind them."""
        assert verdict.picks is not None  # of every verification whose proposals pick

        def run(tokens: Tensor, parents: Tensor, features: Tensor, at: Tensor, *others: Tensor) -> Outputs:
            former, path, accepted, picks = others
            path = path[:, : self.depth + 1]
            found = with_tensors(tree, tokens, parents), Verdict(path, accepted, accepted, picks)
            behind, seen = stale_nodes(*found, self.depth)
            rows = torch.arange(len(behind), device=behind.device)[:, None]
            places = torch.cat([path.gather(1, accepted[:, None]), behind], 1)
            stale = self._left(features.transpose(1, 2)[rows, places].transpose(1, 2))
            slots = at[:, None] + 1 + torch.arange(path.shape[1], device=path.device)
            former = former.scatter(1, slots, tokens.gather(1, path.clamp(min=0)))  # what lies behind is overwritten
            return stale, tokens.gather(1, behind), picks.gather(1, behind), seen, former, at + accepted + 1

        given = tree.tokens, tree.parents, forward.features, self._at, self._tokens, verdict.path, verdict.accepted
        settings = tree.topology, tree.width, self.depth, self.target.cfg_scale
        left = self.target.passes("left", run, *given, verdict.picks, settings=settings)
        self._stale, self._read, self._picks, self._seen, self._tokens, self._at = left

    def keep(self, rows: Tensor) -> None:
        """Shrinks the batch to these rows, in this order."""
        for name in ("_stale", "_tokens", "_picks", "_read", "_seen", "_at"):
            setattr(self, name, getattr(self, name)[rows])


def load_corrected_jacobi(
    checkpoint: str | Path, length: int, target: Target, sampling: Sampling, branches: int = 0
) -> CorrectedJacobi:
    """checkpoint: a folder written by train.py task=window, or where one is found, as for load_eagle."""
    network, name = load_shared(checkpoint, target, WindowNetwork)
    return CorrectedJacobi(network, target, sampling, length, branches, name)
