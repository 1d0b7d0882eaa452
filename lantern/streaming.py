"""One image's decoding, round by round: what is committed, what the round drafted, and how long it took."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import torch
from torch import Tensor

from lantern.errors import LanternError
from lantern.pipeline import Pipeline
from lantern.types import per


@dataclass(frozen=True, eq=False)
class Progress:
    """An image after one round. The first value is the prefill's: one token committed, none drafted."""

    tokens: Tensor  # [L, ...]; not yet committed: -1, or nan for continuous tokens
    committed: int  # of them so far
    positions: Tensor  # [N] image position of each draft token of the round; tokens of a tree may share a position
    depths: Tensor  # [N] of the draft tokens in their tree, 1 for the root's children
    drafts: Tensor  # [N, ...] the draft tokens
    accepted: int  # number of accepted drafts; the round also commits one token of the target's own
    steps: int  # rounds so far, the prefill left out
    ms: float  # decoding time of this round
    seconds: float  # decoding time so far, prefill included; what the caller does between rounds is left out

    @property
    def tokens_per_step(self) -> float:
        """Committed tokens per target forward so far, as Generation.tokens_per_step; 0 after the prefill."""
        return per(self.committed - 1, self.steps) or 0.0

    @property
    def is_complete(self) -> bool:
        return self.committed == len(self.tokens)


def stream(pipeline: Pipeline, prompt: str, seed: int) -> Iterator[Progress]:
    """pipeline.generate([prompt], [seed]) as an iterator. Taking a value decodes one more round; closing the iterator
    ends decoding. LanternError if the model cannot read the prompt, or if the model decodes something else between two
    rounds, since a target holds one cache."""
    seconds = 0.0
    with closing(pipeline.steps(prompt, seed)) as steps:
        for number, step in enumerate(steps):
            cache = getattr(pipeline.target, "cache", None)  # another object for each decoding
            seconds += step.ms / 1e3
            tokens = step.tokens.cpu().clone()
            tokens[step.committed :] = torch.nan if tokens.is_floating_point() else -1
            positions = depths = drafts = torch.zeros(0, dtype=torch.long)
            if step.tree is not None:
                is_draft = step.tree.parents[0].cpu() >= 0
                depths, drafts = step.tree.depths[0].cpu()[is_draft], step.tree.tokens[0].cpu()[is_draft]
                positions = step.committed - step.accepted - 2 + depths  # behind the root, the last token before
            drafted = positions, depths, drafts, step.accepted
            yield (progress := Progress(tokens, step.committed, *drafted, number, step.ms, seconds))
            if getattr(pipeline.target, "cache", None) is not cache and not progress.is_complete:
                raise LanternError(f"another image was decoded before {prompt!r} was; stream one image at a time")
