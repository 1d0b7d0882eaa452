"""Acceptance counts of a run: draft tokens judged and accepted by depth, rank, entropy of the target's law and position
in the image; tokens committed a round; draft tree nodes drafted and accepted.

A site is a node of an accepted path with children. They are judged in order until one is accepted or all are rejected.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from math import log

import numpy as np
import torch
from torch import Tensor

from lantern.pipeline import Pipeline
from lantern.sampling import Sampling, entropy
from lantern.types import Generation, Target, TreeTopology, Verdict

ENTROPY_IMAGES = 8  # their laws are computed again, outside all timing
SHOWN_NODES = 256  # the most often drafted; dynamic trees have thousands
NODES_AT_ONCE = 32  # of a pass over an image's tokens: a longer one needs more memory for its logits

Profile = dict[str, object]  # numbers and lists, as in profiles.json
Judged = tuple[int, bool]  # a depth, rank or position, and whether a child was accepted there
Ranks = tuple[int, ...]  # the path from the root to a node by the numbers of earlier siblings


class RunningProfile:
    """The profile of images that are added as they are made, whose rounds are counted and then dropped."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._rounds = Counter[int]()  # by their committed tokens
        self._drafted, self._accepted = Counter[Ranks](), Counter[Ranks]()  # nodes
        self._depth, self._rank, self._position = (Counter[Judged]() for _ in range(3))
        self._images = 0  # with recorded rounds
        self._first: list[tuple[Sequence[str], Tensor]] = []  # prompts and tokens of the first images
        self._sites: list[tuple[int, int, bool]] = []  # of these: image, position and whether a child was accepted

    def add(self, prompts: Sequence[str], generation: Generation) -> None:
        """Counts the rounds of the images of these prompts."""
        recorded = [a_round for a_round in generation.rounds if a_round.parents is not None]
        if not recorded:
            return
        committed = [1] * len(generation.tokens)  # of each image: the prefill commits one
        for a_round in recorded:
            for image, path, parents in zip(a_round.images, a_round.paths, a_round.parents.tolist(), strict=True):
                self._count(tuple(parents), path, self._images + image, committed[image])
                committed[image] += len(path)
        if (count := ENTROPY_IMAGES - self._images) > 0:
            self._first.append((prompts[:count], generation.tokens[:count]))
        self._images += len(committed)

    def _count(self, parents: tuple[int, ...], path: Sequence[int], image: int, start: int) -> None:
        """A round of one image, behind its first `start` tokens."""
        ranks, num_children = _ranks_of(parents)
        self._rounds[len(path)] += 1
        self._drafted.update(ranks.values())
        self._accepted.update(ranks[node] for node in path)
        for level, (node, below) in enumerate(zip_longest(path, path[1:])):
            if not num_children[node]:
                continue
            is_accepted = below is not None
            self._depth[level, is_accepted] += 1
            self._position[start + level, is_accepted] += 1
            last = ranks[below][-1] if is_accepted else num_children[node] - 1
            self._rank.update((rank, is_accepted and rank == last) for rank in range(last + 1))
            if image < ENTROPY_IMAGES:
                self._sites.append((image, start + level, is_accepted))

    def profile(self) -> Profile | None:
        """Of all images so far; None where no rounds were recorded."""
        if not self._images:
            return None
        target, sampling = self._pipeline.target, self._pipeline.sampling
        first = self._first if sampling.has_entropy else []
        found = (law_entropies(target, sampling, *given).double().cpu().numpy() for given in first)
        bits = [image for images in found for image in images]  # [L] each
        by_bit = Counter((int(bits[image][position]), taken) for image, position, taken in self._sites if bits)
        nodes = sorted(self._drafted, key=lambda ranks: (-self._drafted[ranks], len(ranks), ranks))
        return {
            "grid": [*target.grid], "images": self._images, "rounds": self._rounds.total(),
            "committed": [self._rounds[tokens] for tokens in range(max(self._rounds) + 1)],
            "depth": _lists(self._depth), "rank": _lists(self._rank),
            "position": _lists(self._position, self._first[0][1].shape[1]), "entropy": _lists(by_bit),  # by whole bits
            "entropy_images": len(bits), "entropy_bits": np.mean(bits, 0).round(3).tolist() if bits else [],  # [L]
            "nodes": len(nodes), "nodes_accepted": len(self._accepted),
            "tree": [
                {"path": [*ranks], "drafted": self._drafted[ranks], "accepted": self._accepted[ranks]}
                for ranks in nodes[:SHOWN_NODES]
            ],
        }  # fmt: skip


@lru_cache(64)
def _ranks_of(parents: tuple[int, ...]) -> tuple[dict[int, Ranks], Counter[int]]:
    """parents [N] before children, below -1 for padding -> by node its ranks, () for the root, and its child count."""
    ranks, num_children = dict[int, Ranks](), Counter[int]()
    for node, parent in enumerate(parents):
        if parent >= 0:
            ranks[node] = (*ranks[parent], num_children[parent])
            num_children[parent] += 1
        elif parent == -1:
            ranks[node] = ()
    return ranks, num_children


def _lists(counts: Counter[Judged], size: int = 0) -> dict[str, list[int]]:
    """Numbers judged and accepted, by a small integer."""
    size = max([size, *(place + 1 for place, _ in counts)])
    accepted = [counts[place, True] for place in range(size)]
    return {"judged": [counts[place, False] + taken for place, taken in enumerate(accepted)], "accepted": accepted}


def law_entropies(target: Target, sampling: Sampling, prompts: Sequence[str], tokens: Tensor) -> Tensor:
    """tokens [B, L] -> entropy in bits [B, L] of the law p of each position, given the tokens before it."""
    read = logits_of(target, prompts, tokens.to(target.codebook.device), NODES_AT_ONCE)
    return torch.cat([entropy(sampling.law(logits)) for logits in read], 1) / log(2)


@torch.inference_mode()
def logits_of(target: Target, prompts: Sequence[str], tokens: Tensor, at_once: int) -> Iterator[Tensor]:
    """Logits [B, N, V] at all positions of tokens [B, L], given those before: of the first, then `at_once` a pass."""
    batch, length = tokens.shape
    target.allocate(batch, at_once)
    yield target.prefill(list(prompts), torch.arange(batch, device=tokens.device)).logits
    for start in range(0, length - 1, at_once):
        chunk = tokens[:, start : min(start + at_once, length - 1)]  # the last token conditions nothing
        nodes = torch.arange(chunk.shape[1], device=tokens.device).repeat(batch, 1)
        yield target.verify(TreeTopology.chain(chunk.shape[1] - 1, tokens.device).tree(chunk)).logits
        target.commit(Verdict(nodes, nodes[:, -1], tokens[:, start + chunk.shape[1]]))
