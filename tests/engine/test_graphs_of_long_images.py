"""How many graphs a long image takes, with trees of every size and a batch that drains; on a stand-in that counts."""

from types import SimpleNamespace

import pytest
import torch
from support.toy import CODES, DIM

from lantern.acceptance.exact import Exact
from lantern.decoding import DecodingSetup, generate
from lantern.drafters.none import NoDrafter
from lantern.engine.graphs import MAX_RECORDINGS, PassGraphs
from lantern.models.conditioners import WordFeatures
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import Transformer
from lantern.sampling import Sampling
from lantern.types import PADDING, DraftTree, Generation
from lantern.verification.shared_noise import SharedNoise

PROMPTS = ["a", "b", "c", "d", "e"]
SIDE, MOST, ACCEPTED = 40, 60, 22  # of the token grid; nodes of a tree; tokens of a round, at most


def long_target() -> LlamaGenTarget:
    torch.manual_seed(0)
    transformer = Transformer(DIM, 1, 2, CODES, (SIDE, SIDE), caption_dim=8, prefix_len=4, multiple_of=16)
    images = SimpleNamespace(codebook=torch.randn(CODES, 4), decode=lambda tokens: tokens)
    return LlamaGenTarget(transformer, WordFeatures(list("abcdef"), 8, 4), images)


class Uneven(NoDrafter):
    """A dynamic tree: a chain whose length follows from what images lack."""

    num_nodes, depth = MOST, MOST - 1

    def draft(self, roots, tokens_left, proposals) -> DraftTree:
        nodes = torch.arange(ACCEPTED + 1 + 7 * int(tokens_left.max()) % (MOST - ACCEPTED))
        tokens = (roots[:, None] + tokens_left[:, None] // 3 + 5 * nodes) % CODES
        tokens[:, 0] = roots
        parents = (nodes - 1).repeat(len(roots), 1)
        parents[:, 1:].masked_fill_(nodes[1:] >= tokens_left[:, None], PADDING)
        return DraftTree(tokens, parents, width=1)


class Accepting(SharedNoise):
    """Accepts 8 to 22 tokens, by the first drafted one, so that images end apart."""

    def decided(self, tree, probs, rule, noise):
        path, _, token, picks = super().decided(tree, probs, rule, noise)
        if tree.tokens.shape[1] == 1:
            return path, torch.zeros_like(token), token, picks
        index = torch.arange(tree.tokens.shape[1])
        accepted = (8 + 2 * (tree.tokens[:, 1] % 8)).minimum((~tree.is_padding).sum(1) - 1)
        return index.where(index <= accepted[:, None], -1), accepted, token, picks


class Counting:
    """Records nothing and runs passes again; counts both."""

    made = replayed = 0

    def __call__(self, run):
        self.made += 1

        def replay() -> None:
            self.replayed += 1
            run()

        return replay


def decode(target: LlamaGenTarget) -> Generation:
    setup = DecodingSetup(target, Uneven(), Accepting(), Exact(), Sampling())
    return generate(setup, PROMPTS, range(len(PROMPTS)), len(PROMPTS))


@pytest.mark.full
def test_a_long_image_takes_few_graphs():
    """Catches a graph for each size of a dynamic tree or of a draining batch, which are hundreds or are met too seldom
    to be recorded at all; copies of rows that are reported as images."""
    recorder, target = Counting(), long_target()
    target.passes = PassGraphs(recorder)
    made = decode(target)
    passes = 2 * len(made.rounds)  # verification's, too
    assert recorder.replayed - recorder.made > 0.6 * passes
    assert recorder.made <= 100
    assert target.passes.count <= MAX_RECORDINGS
    assert 0 < target.passes.nbytes <= len(PROMPTS) * MOST * 2**12
    assert len({len(turn.paths) for turn in made.rounds}) > 2
    plain = decode(long_target())
    assert torch.equal(made.tokens, plain.tokens)
    assert torch.equal(made.steps, plain.steps)
    assert [turn.paths for turn in made.rounds] == [turn.paths for turn in plain.rounds]


def test_sizes_are_few_and_hold_together_twice_the_largest():
    size_of = PassGraphs(Counting()).size
    for largest in range(1, 130):
        sizes = {size_of(size, largest) for size in range(1, largest + 1)}
        assert all(size <= size_of(size, largest) <= largest for size in range(1, largest + 1))
        assert sum(sizes) <= 2 * largest
        assert len(sizes) <= 8
