"""A target and a drafter whose laws are tables: the next-token logits of every path, conditional and unconditional.
Paths are numbered like a heap: path i continued by token x is path V i + x + 1."""

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.decoding import DecodingSetup, generate
from lantern.engine.graphs import EagerPasses
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.sampling import Sampling
from lantern.types import AcceptanceRule, Drafter, DraftTree, Forward, Proposals, TreePolicy, Verdict, Verification

COMMON = 2**31  # seed of what tables share
RARE = 10  # expected images of a bin; the chi-square test merges bins with fewer


class TableTarget:
    """Implements lantern.types.Target in float64; its features are its logits, its embeddings one-hot."""

    guide, empty_tokens = LlamaGenTarget.guide, LlamaGenTarget.empty_tokens
    held_bytes, compiles, passes, weights_hash = 0, False, EagerPasses(), "table"

    def __init__(
        self, vocab_size: int, num_tokens: int, cfg_scale: float, seed: int = 0, spread: float = 0.0
    ) -> None:  # fmt: skip
        """spread: of what the logits of all seeds share."""
        generator, common = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(COMMON)
        size, self.spread = (2, (vocab_size**num_tokens - 1) // (vocab_size - 1), vocab_size), spread
        own, shared = (torch.randn(size, generator=one, dtype=torch.float64) for one in (generator, common))
        self.table = 0.7 * own + spread * shared
        self.vocab_size, self.num_tokens = vocab_size, num_tokens
        self.grid = (2, num_tokens // 2) if num_tokens % 2 == 0 else (1, num_tokens)
        self.cfg_scale, self.guidance = cfg_scale, 1 if cfg_scale == 1 else 2
        self.codebook = torch.randn(vocab_size, 2, generator=generator)
        self.embed_weight = torch.eye(vocab_size, dtype=self.table.dtype)

    def configured(self, cfg_scale: float, compiled: bool = False) -> "TableTarget":
        target = copy(self)
        target.cfg_scale, target.guidance = cfg_scale, 1 if cfg_scale == 1 else 2
        return target

    def another(self, seed: int) -> "TableTarget":
        """A target of the same sizes with other laws."""
        return TableTarget(self.vocab_size, self.num_tokens, self.cfg_scale, seed, self.spread)

    def forward(self, paths: Tensor) -> Forward:  # [B, N]
        features = self.table[: self.guidance, paths.clamp(max=self.table.shape[1] - 1)].transpose(0, 1)
        return Forward(self.head(self.guide(features)), features)

    def child(self, paths: Tensor, tokens: Tensor) -> Tensor:
        return self.vocab_size * paths + tokens + 1

    def image_bytes(self, num_nodes: int) -> int:
        return 0

    def release(self) -> None: ...

    def allocate(self, batch_size: int, num_nodes: int) -> None:
        self._path = torch.zeros(batch_size, dtype=torch.long)

    def prefill(self, prompts: Sequence[str], rows: Tensor) -> Forward:
        self._path[rows] = 0
        return self.forward(self._path[rows, None])

    def verify(self, tree: DraftTree) -> Forward:
        paths = [self.child(self._path, tree.tokens[:, 0])]
        for node in range(1, tree.tokens.shape[1]):
            above = torch.stack(paths, 1).gather(1, tree.parents[:, node, None].clamp(min=0))[:, 0]
            paths.append(self.child(above, tree.tokens[:, node]))
        self._nodes = torch.stack(paths, 1)
        return self.forward(self._nodes)

    def commit(self, verdict: Verdict) -> None:
        rows = torch.arange(len(verdict.next_token))
        self._path = self._nodes[rows, verdict.path[rows, verdict.accepted]]

    def keep(self, rows: Tensor) -> None:
        self._path = self._path[rows]

    def embed(self, tokens: Tensor) -> Tensor:
        return self.embed_weight[tokens]

    def head(self, features: Tensor) -> Tensor:
        return features


class LongTarget(TableTarget):
    """Laws depend on the token before alone: images may be long, codes many. Every code has a near one."""

    def __init__(self, vocab_size: int, num_tokens: int, cfg_scale: float, seed: int = 0, apart: float = 0.3) -> None:
        """apart: of the drafts' laws. Small, long drafts are accepted; at 1, late siblings are judged."""
        super().__init__(vocab_size, 2, cfg_scale, seed)  # a row for each token before
        self.apart = apart
        self.num_tokens, self.grid = num_tokens, (1, num_tokens)
        near = self.codebook[: vocab_size // 2]
        self.codebook = torch.cat([near, near + 0.01])

    def another(self, seed: int) -> "LongTarget":
        target, other = copy(self), LongTarget(self.vocab_size, self.num_tokens, self.cfg_scale, seed)
        target.table = self.table + self.apart * other.table
        return target

    def child(self, paths: Tensor, tokens: Tensor) -> Tensor:
        return tokens + 1

    def pair_laws(self, sampling: Sampling) -> list[Tensor]:
        """The joint laws [V, V] of an image's neighbouring tokens."""
        rows = torch.arange(self.vocab_size + 1)[None]
        laws = sampling.law(self.forward(rows).logits)[0]  # [V + 1, V]
        first, found = laws[0], []
        for _ in range(self.num_tokens - 1):
            found.append(first[:, None] * laws[1:])
            first = found[-1].sum(0)
        return found


class TableDrafter:
    """Implements lantern.types.Drafter: q is the law of another table with the target's guidance and sampling."""

    name, weights_hash = "table", None
    forwards, forward_s = 0, 0.0

    def __init__(self, target: TableTarget, tree: TreePolicy, sampling: Sampling, seed: int = 1) -> None:
        sizes = target.vocab_size, target.num_tokens, target.cfg_scale
        self.model = target.another(seed) if isinstance(target, TableTarget) else TableTarget(*sizes, seed)
        self.tree, self.sampling = tree, sampling
        self.num_nodes, self.depth = tree.num_nodes, tree.depth

    def allocate(self, batch_size: int) -> None:
        self._path = torch.zeros(batch_size, dtype=torch.long)

    def begin(self, prefill: Forward, rows: Tensor) -> None:
        self._path[rows] = 0

    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        self._expanded = self._path[:, None]
        return self.tree.grow(roots, tokens_left, self._expand, proposals)

    def _expand(self, tokens: Tensor, parents: Tensor, depth: int) -> Tensor:
        above = self._expanded.gather(1, parents.expand(len(tokens), -1).clamp(min=0))
        paths = self.model.child(above, tokens)
        self._expanded = paths if depth == 0 else torch.cat([self._expanded, paths], dim=1)
        return self.sampling.scores(self.model.forward(paths).logits)

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        tokens = tree.tokens.gather(1, verdict.path.clamp(min=0))
        for slot in range(tokens.shape[1]):
            grown = self.model.child(self._path, tokens[:, slot])
            self._path = torch.where(slot <= verdict.accepted, grown, self._path)

    def keep(self, rows: Tensor) -> None:
        self._path = self._path[rows]


def sequence_law(target: TableTarget, sampling: Sampling, committed: Sequence[int] = ()) -> Tensor:
    """The target's joint law of the tokens after `committed`, an axis [V] for each: the product of its conditionals."""
    path = torch.zeros(1, 1, dtype=torch.long)
    for token in committed:
        path = target.child(path, torch.tensor(token))
    law, length = torch.ones(1, dtype=torch.float64), target.num_tokens - len(committed)
    for _ in range(length):
        law = (law[:, None] * sampling.law(target.forward(path).logits)[:, 0]).flatten()
        path = target.child(path, torch.arange(target.vocab_size)).reshape(-1, 1)
    return law.view([target.vocab_size] * length)


def many_images(
    target: TableTarget, drafter: Drafter, verification: Verification, sampling: Sampling,
    rule: AcceptanceRule | None = None, count: int = 8_000,
) -> Tensor:  # fmt: skip
    """Tokens [count, L] of as many images of one prompt."""
    setup = DecodingSetup(target, drafter, verification, rule or Exact(), sampling)
    return generate(setup, ["x"] * count, range(count), batch_size=count).tokens


def p_value(sequences: Tensor, law: Tensor) -> float:
    """Pearson's chi-square test of sequences [B, L] against law [V] * L; rare bins are merged into one. 0 for a
    sequence outside the law's support."""
    size = law.shape[0]
    cells = (sequences * size ** torch.arange(law.dim() - 1, -1, -1)).sum(1)
    counts = torch.bincount(cells, minlength=law.numel()).double()
    expected = law.flatten() * len(sequences)
    if bool(counts[expected == 0].sum() > 0):
        return 0.0
    rare = expected < RARE
    counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    kept = expected > 0
    statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    freedom = torch.tensor((int(kept.sum()) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2))
