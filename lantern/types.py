"""The values and roles every part of Lantern exchanges. Shape letters, used everywhere:
B images, R guidance rows (1, or 2 = conditional, unconditional), N tree nodes, V codebook size, D feature width,
L image tokens, C code dimension, K neighbours, P prefix tokens, A path slots. p is the target law, q the draft law."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from lantern.draft_tree import PADDING, DraftTree
from lantern.draft_tree import TreeTopology as TreeTopology
from lantern.noise import Noise


class Forward(NamedTuple):
    """What one target pass returns."""

    logits: Tensor  # [B, N, V] after guidance; the law is computed from these
    features: Tensor  # [B, R, N, F]: what the head reads (after the final norm), then the inputs of requested layers


@dataclass(frozen=True, eq=False)
class Verdict:
    """What verification decided for each row."""

    path: Tensor  # [B, A] accepted nodes, root first, padded with -1
    accepted: Tensor  # [B] draft tokens accepted (0 … A-1)
    next_token: Tensor  # [B, ...] the recovered or bonus token
    picks: Tensor | None = None  # [B, N, ...] the token that would have followed each node, if verification knows it

    @cached_property
    def paths(self) -> list[list[int]]:
        """`path` on the host, unpadded and cached. Reading it waits for the device: mostly a round's only wait."""
        return [row[: row.index(-1)] if -1 in row else row for row in self.path.tolist()]

    @cached_property
    def counts(self) -> list[int]:
        """The same as num_committed, on the host."""
        return [len(path) for path in self.paths]

    @cached_property
    def num_committed(self) -> Tensor:
        """[B] tokens that the round commits: the accepted ones and the next one."""
        return self.accepted + 1


class Site(NamedTuple):
    """Where a rule judges a token."""

    depth: Tensor  # [B] depth of the judged child
    rank: Tensor  # [B] number of siblings rejected before it
    law: Tensor  # [B, V] p at its parent, before any rejection
    node: Tensor | None = None  # [B] index of the judged child among the flattened nodes [B N]


class AcceptanceRule(Protocol):
    """Judges one proposed token at one site. Ratio works with any rule. Of one that is not lossless shared noise needs
    `relax` (acceptance/relaxed.py) or `law` (acceptance/committed.py), block and traversal need `law`."""

    name: str
    verification: str  # its default, shared_noise or ratio; otherwise the only verification that takes this rule
    lossless: bool  # whether the output law is the target's

    @property
    def parameters(self) -> Mapping[str, float]: ...  # its settings, by the names they have in its config
    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """p [B, V], q [B, V] or None (chosen), x [B] -> acceptance probability [B], residual law [B, V]."""


@runtime_checkable
class RoundReader(AcceptanceRule, Protocol):
    """A rule that also reads the rest of the round: the other drafted tokens, or the target's features at them."""

    def of_round(self, tree: DraftTree, features: Tensor) -> AcceptanceRule: ...  # [B, R, N, D], as the head reads them


class PassRunner(Protocol):
    """Runs functions of tensors kernel by kernel, or as CUDA graphs of a few sizes (lantern/engine/graphs.py)."""

    has_graphs: bool

    @property
    def cuda_graphs(self) -> bool | None: ...  # whether every pass is one; None on a CPU
    def __call__(
        self, name: str, run: Callable, *inputs: Tensor, store: Tensor | None = None, settings: tuple = ()
    ) -> tuple[Tensor, ...]: ...  # run(*inputs)
    def size(self, count: int, largest: int) -> int: ...  # `count` rows or nodes, rounded up with padding
    def pad(self, tree: DraftTree, largest: int) -> DraftTree: ...  # pads the tree to that size
    def clear(self) -> None: ...  # drops all recordings


class Target(Protocol):
    """A visual AR model behind its guidance, its id offsets and its KV cache."""

    vocab_size: int  # V: numbers in a law, and in a position's row of noise
    num_tokens: int
    grid: tuple[int, int]
    codebook: Tensor  # [V, C] in the metric the decoder uses
    embed_weight: Tensor  # [V, D] what embed reads
    cfg_scale: float
    guidance: int  # R: 1 without guidance, else 2
    compiles: bool  # whether passes run through torch.compile
    weights_hash: str
    held_bytes: int  # memory of caches and recorded passes; the next allocate reuses or frees it

    @property
    def passes(self) -> PassRunner: ...
    def configured(self, cfg_scale: float, compiled: bool = False) -> Self: ...  # shares weights and cache memory
    def image_bytes(self, num_nodes: int) -> int: ...  # what its cache holds
    def allocate(self, batch_size: int, num_nodes: int) -> None: ...  # an empty cache for trees of at most num_nodes
    def release(self) -> None: ...  # frees the cache's memory
    def prefill(self, prompts: Sequence[str], rows: Tensor) -> Forward: ...  # admits prompts into rows of the batch
    def verify(self, tree: DraftTree) -> Forward: ...  # one pass over the tree behind the committed prefix
    def commit(self, verdict: Verdict) -> None: ...  # keeps the accepted nodes' cache entries, discards the rest
    def keep(self, rows: Tensor) -> None: ...  # shrinks the batch to these rows, in this order
    def empty_tokens(self, *shape: int) -> Tensor: ...  # zeros of the shape of tokens
    def embed(self, tokens: Tensor) -> Tensor: ...  # [...] -> [..., D]
    def guide(self, features: Tensor) -> Tensor: ...  # [B, R, N, D] -> [B, N, D]: u + s (c - u)
    def head(self, features: Tensor) -> Tensor: ...  # [..., D] -> logits [..., V]
    def decode(self, tokens: Tensor) -> Tensor: ...  # [B, L] -> images [B, 3, H, W] in [0, 1]


@runtime_checkable
class PromptReader(Protocol):
    """What is known of how a target reads prompts. A target states it in `reads`, or else reads AnyText."""

    weights_hash: str | None  # of a text encoder with weights of its own
    reads_any_text: bool
    words: Collection[str]  # of a closed vocabulary
    evaluate_with: Sequence[str]  # settings of evaluate.py that replace its default prompts and metrics

    def check(self, captions: Iterable[str]) -> None: ...  # LanternError for captions that are not read


class AnyText:
    """Implements PromptReader for what reads every text, without an encoder of its own."""

    weights_hash: str | None = None
    reads_any_text = True
    words: Collection[str] = ()
    evaluate_with: Sequence[str] = ()

    def check(self, captions: Iterable[str]) -> None:
        """Every caption is read."""


def reader_of(target: object) -> PromptReader:
    return getattr(target, "reads", AnyText())


class TreeLabel(NamedTuple):
    """Names a drafter's drafts in result rows if it has no TreePolicy; kind: their family, of one name or more."""

    name: str
    kind: str


class Drafter(Protocol):
    """Proposes a tree a round; keeps what it needs of the committed tokens."""

    name: str
    weights_hash: str | None  # None without weights
    tree: "TreePolicy | TreeLabel"
    num_nodes: int
    depth: int
    forwards: int  # drafter forwards so far
    forward_s: float  # host seconds of the forwards in rounds, head included

    def allocate(self, batch_size: int) -> None: ...
    def begin(self, prefill: Forward, rows: Tensor) -> None: ...
    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: "Proposals") -> DraftTree: ...  # both [B]
    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None: ...
    def keep(self, rows: Tensor) -> None: ...


@runtime_checkable
class WholeImageDrafter(Protocol):
    """A drafter that decodes whole images by a loop of its own, and has no rounds of trees."""

    def decode(
        self, setup: Any, prompts: Sequence[str], seeds: Sequence[int], batch_size: int = 1
    ) -> "Generation": ...  # as lantern.decoding.generate, whose DecodingSetup it gets


# A drafter's callback, which a tree policy calls once per level: tokens [B, W] of the nodes to expand, all at this
# depth (0: the root), parents [B, W]: their indices in the order of expansion, -1 for the root's -> log q [B, W, V], up
# to a constant per node
Expand = Callable[[Tensor, Tensor, int], Tensor]


class TreePolicy(Protocol):
    """Decides which nodes are expanded. The policy runs the algorithm and calls the drafter through `expand`.
    grow: roots [B], tokens_left [B] of each image -> DraftTree [B, N], N of the largest row."""

    name: str
    kind: str  # name of the policy; several trees may share it
    num_nodes: int  # N, the root included
    num_expanded: int  # nodes that the drafter runs a round, at most
    depth: int
    width: int  # children of a node, at most

    def grow(self, roots: Tensor, tokens_left: Tensor, expand: Expand, proposals: "Proposals") -> DraftTree: ...


@runtime_checkable
class StatefulTreePolicy(TreePolicy, Protocol):
    """A tree policy that learns from the rounds of each image; the decoding loop calls it."""

    def allocate(self, batch_size: int, grid: tuple[int, int], device: torch.device) -> None: ...
    def begin(self, rows: Tensor) -> None: ...  # these rows start new images
    def observe(self, verdict: Verdict) -> None: ...  # of the trees grown last
    def keep(self, rows: Tensor) -> None: ...


class Proposals(Protocol):
    """How children are proposed for a verification. Scores are [B, W, V]; a node's children are its best-scored
    codes. log q is known up to a constant per node. redraw_coupled: laws [B, W, V] of a window -> tokens [B, W]."""

    needs_draft_law: bool  # whether verification reads q at nodes whose children were drawn

    def sample_scores(self, log_q: Tensor, nodes: Tensor, depth: int) -> Tensor: ...  # nodes [W] or [B, W]: indices
    def topk_scores(self, log_q: Tensor, depth: int) -> Tensor: ...  # log acceptance probability of each code
    def redraw_coupled(self, laws: Tensor, former: Tensor, former_laws: Tensor, known: Tensor) -> Tensor: ...


class Abilities(NamedTuple):
    """What a verification can do. The defaults hold for one that states nothing: they promise nothing."""

    tosses_coins: bool = True  # it cannot decode at temperature 0
    law_is_of_its_node: bool = False  # judges a node's children in order, each by the rule's own chance
    picks_by_noise: bool = False  # commits the code that the target's noise picks, argmax(log r + G) for some law r


class Verification(Protocol):
    """Walks a tree. One object for every rule and every tree. It may state its `abilities`, `lossless = False` where it
    changes the law under every rule, and the verification of plain decoding by a method `plain`. It is called with
    probs p [B, N, V], of latents their conditions [B, N, R D]."""

    name: str

    @property
    def head_s(self) -> float: ...  # host seconds so far of a head that it runs, 0 for codes
    @property
    def proposals(self) -> Callable[[Noise], Proposals]: ...

    def __call__(self, tree: DraftTree, probs: Tensor, rule: AcceptanceRule, noise: Noise) -> Verdict: ...


def abilities_of(verification: object) -> Abilities:
    return getattr(verification, "abilities", Abilities())


class Round(NamedTuple):
    """The record of one round. Times are host time; on a GPU only their sum is meaningful: accept_ms waits."""

    paths: list[list[int]]  # accepted nodes by active row, the root first
    nodes: int  # of the widest row's tree, root included: what the pass computes for every row
    draft_ms: float
    verify_ms: float
    accept_ms: float  # of the laws and the verification
    images: Sequence[int] = ()  # index of each active row's image in the list of prompts
    parents: Tensor | None = None  # [B, N] of the tree, left on its device
    commit_ms: float = 0.0  # of the caches and the bookkeeping
    tokens_read: int = 0  # by all rows; set by decoders without trees

    @property
    def ms(self) -> float:
        """Of the whole round."""
        return self.draft_ms + self.verify_ms + self.accept_ms + self.commit_ms

    @property
    def num_judged(self) -> int:
        """Nodes of all rows without padding, so that an image's share does not depend on its batch."""
        whole = self.tokens_read or self.nodes * len(self.paths)
        return whole if self.parents is None else int((self.parents != PADDING).sum())

    @property
    def accepted(self) -> list[int]:
        """Draft tokens accepted, by active row."""
        return [len(path) - 1 for path in self.paths]


@dataclass(frozen=True, eq=False, repr=False)
class Generation:
    """The result of decoding.generate for a list of prompts, in their order."""

    tokens: Tensor  # [B, L, ...]
    rounds: list[Round]
    steps: Tensor  # [B] rounds each image took (target forwards after its prefill)
    latency_s: float  # token time of the whole call, prefill included
    drafter_forwards: int
    drafter_s: float = 0.0  # part of latency_s spent in drafter forwards, host time as in Round
    head_s: float = 0.0  # the same of a head that verification runs
    unread: int = 0  # tokens behind ends that were drawn early, of all images
    window_left_out: int | None = None  # from this round on, by lantern.accelerate: it did not pay

    @property
    def tokens_per_step(self) -> float | None:
        """Committed image tokens per target forward, excluding the prefill and its token. None for one-token images."""
        return per((self.tokens.shape[1] - 1) * len(self.tokens) - self.unread, int(self.steps.sum()))

    def __repr__(self) -> str:
        rate = f"{self.tokens_per_step or 0:.2f} tokens per step, {len(self.rounds)} rounds"
        return f"Generation({len(self.tokens)} images, {rate}, {self.latency_s:.2f} s)"


def per(total: float, count: float) -> float | None:
    """total / count; None where there is nothing to count, such as forwards behind the prefill."""
    return total / count if count else None
