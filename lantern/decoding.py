"""The decoding loop: draft, verify, accept, commit. Every method and the plain autoregressive baseline run through it,
many images at once, each committing its own number of tokens a round; finished rows make way for waiting prompts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from lantern.engine.judging import Judge, check_probabilities
from lantern.errors import LanternError, check_whole
from lantern.models.token_grid import expand_index_like
from lantern.runtime.cores import sharing_cores
from lantern.runtime.memory import check_memory, memory_errors_explained
from lantern.sampling import Sampling
from lantern.types import (
    AcceptanceRule,
    Drafter,
    DraftTree,
    Forward,
    Generation,
    Round,
    StatefulTreePolicy,
    Target,
    TreeTopology,
    Verdict,
    Verification,
    WholeImageDrafter,
)


@dataclass(frozen=True)
class DecodingSetup:
    """All that decoding needs beside prompts and seeds."""

    target: Target
    drafter: Drafter
    verification: Verification
    rule: AcceptanceRule
    sampling: Sampling

    def __post_init__(self) -> None:
        if self.target.cfg_scale != self.sampling.cfg_scale:
            raise LanternError(
                f"sampling.cfg_scale={self.sampling.cfg_scale}, the target guides by {self.target.cfg_scale}; "
                "decode on target.configured(sampling.cfg_scale)"
            )


@memory_errors_explained()
@torch.inference_mode()
def generate(setup: DecodingSetup, prompts: Sequence[str], seeds: Sequence[int], batch_size: int = 1) -> Generation:
    """Decodes the prompts to image tokens [B, L, ...], in their order; image i uses the noise stream seeds[i]. An
    image's tokens depend only on weights, prompt, seed and settings (in bfloat16 up to rounding)."""
    if isinstance(setup.drafter, WholeImageDrafter):
        return setup.drafter.decode(setup, prompts, seeds, batch_size)
    check_request(prompts, seeds, batch_size)
    batch = _Batch(setup, min(batch_size, len(prompts)))
    started = perf_counter()
    waiting = list(range(len(prompts)))[::-1]
    drafter, verification = setup.drafter, setup.verification
    forwards, forward_s, head_s = drafter.forwards, drafter.forward_s, verification.head_s
    while waiting or len(batch):
        free = batch.free_rows()
        if free and waiting:
            new = [waiting.pop() for _ in free[: len(waiting)]]
            batch.admit(free[: len(new)], new, [prompts[i] for i in new], [seeds[i] for i in new])
        elif free:
            batch.shrink()
        else:
            batch.step()
    latency = perf_counter() - started
    tokens, steps = zip(*(batch.done[image] for image in range(len(prompts))), strict=True)
    work = drafter.forwards - forwards, drafter.forward_s - forward_s, verification.head_s - head_s
    return Generation(torch.stack(tokens), batch.rounds, torch.tensor(steps), latency, *work, batch.unread)


def check_request(prompts: Sequence[str], seeds: Sequence[int], batch_size: int) -> None:
    check_whole("", 1, batch_size=batch_size)
    if not prompts:
        raise LanternError("prompts=[] has none; give one at least")
    if len(prompts) != len(seeds):
        raise LanternError(f"prompts: {len(prompts)}, seeds: {len(seeds)}; give each prompt one of its own")


@torch.inference_mode()
def first_rounds(setup: DecodingSetup, prompts: Sequence[str], seeds: Sequence[int], count: int) -> list[Round]:
    """Decodes the prompts together -> the first `count` rounds, or fewer if an image is complete earlier."""
    batch, rows = _Batch(setup, len(prompts)), list(range(len(prompts)))
    batch.admit(rows, rows, list(prompts), list(seeds))
    while len(batch.rounds) < count and not batch.free_rows():
        batch.step()
    return batch.rounds


class Step(NamedTuple):
    """One image after one round of decoding."""

    tokens: Tensor  # [L, ...]; only the first `committed` entries are valid
    committed: int
    tree: DraftTree | None  # drafted in this round; None for the prefill, which commits the first token
    accepted: int  # draft tokens
    ms: float


@torch.inference_mode()
def steps(setup: DecodingSetup, prompt: str, seed: int) -> Iterator[Step]:
    """generate() for one prompt: each value taken decodes one more round; closing the iterator ends decoding."""
    batch, length = _Batch(setup, 1), setup.target.num_tokens
    started = perf_counter()
    batch.admit([0], [0], [prompt], [seed])
    yield Step(batch.tokens[0, :length], 1, None, 0, 1e3 * (perf_counter() - started))
    while not batch.free_rows():
        tree = batch.step()
        last = batch.rounds[-1]
        yield Step(batch.tokens[0, :length], batch.counts[0], tree, last.accepted[0], last.ms)


class _Batch:
    """The rows being decoded. A row is free once its image is complete. When the batch shrinks, copies of its first row
    pad it to a size that the target's passes have; the copies are the rows from index `distinct` on."""

    def __init__(self, setup: DecodingSetup, size: int) -> None:
        self.setup, self.size, self.distinct = setup, size, size
        target, drafter = self.target, self.drafter = setup.target, setup.drafter
        check_memory(target, drafter.num_nodes, size)
        target.allocate(size, drafter.num_nodes)
        drafter.allocate(size)
        self.trees = [drafter.tree] if isinstance(drafter.tree, StatefulTreePolicy) else []  # that learn from rounds
        for tree in self.trees:
            tree.allocate(size, target.grid, target.codebook.device)
        self.noise = setup.sampling.noise(target, drafter, size)
        self.proposals = setup.verification.proposals(self.noise)
        width = target.embed_weight.shape[1]
        self.judge = Judge(target.passes, setup.sampling, setup.verification, setup.rule, self.noise, width)
        spare = drafter.depth + 1  # a row's last write may run past its end
        self.tokens = target.empty_tokens(size, target.num_tokens + spare)
        self.count = torch.zeros(size, dtype=torch.long, device=self.tokens.device)  # [B] committed tokens
        self.roots = self.tokens[:, 0].clone()  # [B, ...] the last of them
        self.counts = [0] * size  # the same on the host
        self.images = [-1] * size
        self.steps = [0] * size
        self.rounds: list[Round] = []
        self.unread = 0  # tokens behind ends
        self.done: dict[int, tuple[Tensor, int]] = {}

    def __len__(self) -> int:
        return len(self.images)

    def free_rows(self) -> list[int]:
        return [row for row, image in enumerate(self.images[: self.distinct]) if image < 0]

    @sharing_cores
    def admit(self, rows: list[int], images: list[int], prompts: list[str], seeds: list[int]) -> None:
        """Prefills the prompts into free rows and commits their first tokens."""
        where = torch.tensor(rows, device=self.count.device)
        self.noise.admit(where, torch.tensor(seeds, device=where.device))
        prefill = self.target.prefill(prompts, where)
        self.drafter.begin(prefill, where)
        for policy in self.trees:
            policy.begin(where)
        self.tokens[where, 0] = self.roots[where] = self._first_tokens(prefill, where)
        self.count[where] = 1
        first = torch.zeros_like(self.count).index_fill(0, where, 1)
        self.noise.advance([int(row in rows) for row in range(len(self))], first)
        for row, image in zip(rows, images, strict=True):
            self.images[row], self.steps[row], self.counts[row] = image, 0, 1
        self._finish()

    def _first_tokens(self, prefill: Forward, rows: Tensor) -> Tensor:
        """The first token of each of these rows, verified like any other: the tree is only a root."""
        law = self.setup.sampling.law(prefill.logits)
        check_probabilities(law, self.target)
        probs = law.new_full((len(self), 1, law.shape[-1]), 1.0).index_copy(0, rows, law)
        root = TreeTopology.chain(0, law.device).tree(self.tokens[:, :1])
        return self.setup.verification(root, probs, self.setup.rule, self.noise).next_token[rows]

    @sharing_cores
    def step(self) -> DraftTree:
        """One round for every row; returns what was drafted."""
        start = perf_counter()
        left = torch.tensor([self.target.num_tokens - count for count in self.counts])  # on the host, where it is read
        tree = self.drafter.draft(self.roots, left, self.proposals)
        tree = self.target.passes.pad(tree, self.drafter.num_nodes)
        drafted = perf_counter()
        forward = self.target.verify(tree)
        verified = perf_counter()
        probs, verdict = self.judge(tree, forward)
        paths = verdict.paths  # on the host: waits for the device, as some trees also do while they grow
        accepted = perf_counter()
        self.target.commit(verdict)
        self.drafter.observe(tree, forward, probs, verdict)
        for policy in self.trees:
            policy.observe(verdict)
        self._write(tree, verdict)
        times = (start, drafted, verified, accepted, perf_counter())
        draft_ms, verify_ms, accept_ms, commit_ms = (1e3 * (after - before) for before, after in pairwise(times))
        images, parents = tuple(self.images[: self.distinct]), tree.parents[: self.distinct]
        of_tree = paths[: self.distinct], tree.tokens.shape[1]
        self.rounds.append(Round(*of_tree, draft_ms, verify_ms, accept_ms, images, parents, commit_ms))
        self.steps = [count + 1 for count in self.steps]
        if self._finish():
            check_probabilities(probs[:, 0], self.target)  # once an image: NaN in a cache entry reaches all later laws
        return tree

    def _write(self, tree: DraftTree, verdict: Verdict) -> None:
        """Appends the accepted tokens and the verdict's own."""
        committed = verdict.counts
        path = verdict.path[:, : max(committed)].clamp(min=0)  # from the root, already written
        positions = (self.count - 1)[:, None] + torch.arange(path.shape[1], device=path.device)
        drafted = tree.tokens.gather(1, expand_index_like(path, tree.tokens))
        self.tokens.scatter_(1, expand_index_like(positions, self.tokens), drafted)
        self.count += verdict.num_committed
        self.roots = verdict.next_token
        last = expand_index_like((self.count - 1)[:, None], self.tokens)
        self.tokens.scatter_(1, last, self.roots[:, None])  # what lies behind is overwritten
        self.counts = [count + fresh for count, fresh in zip(self.counts, committed, strict=True)]
        self.noise.advance(committed, verdict.num_committed)

    def _finish(self) -> bool:
        """Moves complete images to `done` and frees their rows; returns whether there were any."""
        before, ended = len(self.done), [False] * self.distinct
        if (ends := getattr(self.target, "ends", None)) is not None:  # tokens that complete an image
            is_committed = torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.count[:, None]
            ended = (torch.isin(self.tokens, ends) & is_committed).any(1).tolist()
        for row, count in enumerate(self.counts[: self.distinct]):
            if (count >= self.target.num_tokens or ended[row]) and self.images[row] >= 0:
                self.done[self.images[row]] = (self.tokens[row, : self.target.num_tokens].clone(), self.steps[row])
                self.images[row] = -1
                self.unread += max(0, self.target.num_tokens - count)
        return len(self.done) > before

    def shrink(self) -> None:
        """Drops the free rows once no prompt waits. Only the last active rows move, into the free slots."""
        alive = [row for row in range(self.distinct) if self.images[row] >= 0]
        last, self.distinct = list(alive), len(alive)
        left = [row if self.images[row] >= 0 else last.pop() for row in range(len(alive))]
        if left:
            left += left[:1] * (self.target.passes.size(len(left), self.size) - len(left))
        rows = torch.tensor(left, dtype=torch.long, device=self.count.device)
        self.images, self.steps = [self.images[r] for r in left], [self.steps[r] for r in left]
        self.counts = [self.counts[r] for r in left]
        self.tokens, self.count, self.roots = self.tokens[rows], self.count[rows], self.roots[rows]
        for part in (self.target, self.drafter, self.noise):
            part.keep(rows)
        for tree in self.trees:
            tree.keep(rows)
