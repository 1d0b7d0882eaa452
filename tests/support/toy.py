"""A tiny LlamaGen with random weights, peaked enough to decode with, and an untrained EAGLE drafter on it."""

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace

import torch
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.decoding import DecodingSetup, generate
from lantern.drafters.eagle.eagle import Eagle
from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.jacobi.corrected import WindowNetwork
from lantern.drafters.none import NoDrafter
from lantern.models.conditioners import WordFeatures
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import Transformer, feed_forward_dim
from lantern.sampling import Sampling
from lantern.types import PADDING, DraftTree, Generation, TreePolicy, Verdict
from lantern.verification.shared_noise import SharedNoise

PROMPTS = ["a b", "c", "d e f", "a c", "b", "f", "b b", "e d"]
SEEDS = list(range(11, 19))
DIM, CODES, GRID = 32, 24, (4, 4)


def tiny_target(
    cfg_scale: float = 2.0, dtype: torch.dtype = torch.float64, grid: tuple[int, int] = GRID, prefix_len: int = 4
) -> LlamaGenTarget:
    """16 tokens of 24 codes behind captions of up to prefix_len words out of a … f."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformer = Transformer(DIM, 2, 2, CODES, grid, caption_dim=8, prefix_len=prefix_len, multiple_of=16)
        codebook = torch.nn.functional.normalize(torch.randn(CODES, 4), dim=1)
    with torch.no_grad():
        for weight in transformer.parameters():
            if weight.dim() == 2:
                weight.mul_(4)
    images = SimpleNamespace(codebook=codebook, decode=lambda tokens: tokens)
    return LlamaGenTarget(
        transformer.to(dtype), WordFeatures(list("abcdef"), 8, prefix_len), images, cfg_scale, "tiny-target"
    )


def tiny_eagle(
    target: LlamaGenTarget, tree: TreePolicy, sampling: Sampling, layers: Sequence[int] = (), num_layers: int = 1,
    input_norms: bool = False,
) -> Eagle:  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(1)
        sizes = {"layers": layers, "num_layers": num_layers, "input_norms": input_norms}
        network = EagleNetwork(DIM, 2, feed_forward_dim(DIM, 16), **sizes)
        for norm in (network.embedding_norm, network.feature_norm) if input_norms else ():
            torch.nn.init.normal_(norm.weight)
    return Eagle(network.to(target.embed_weight), target, tree, sampling, "tiny-drafter")


def tiny_window(target: LlamaGenTarget, layers: Sequence[int] = (1, 0), scaled: bool = False) -> WindowNetwork:
    """A network that changes much of a window: an untrained one changes nothing."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = WindowNetwork(DIM, 16, 2, layers, 6, target.grid[1], groups=2, scaled=scaled)
        for weight in (network.out.weight, network.age.weight, *(block.out.weight for block in network.blocks)):
            torch.nn.init.normal_(weight)
    return network.to(target.embed_weight)


def decode(
    target, drafter, sampling: Sampling, batch_size: int, verification=None, rule=None,
    prompts: Sequence[str] = PROMPTS, seeds: Sequence[int] = (),
) -> Generation:  # fmt: skip
    """The prompts' images, under shared noise, the exact rule and SEEDS if nothing else is said."""
    setup = DecodingSetup(target, drafter, verification or SharedNoise(), rule or Exact(), sampling)
    return generate(setup, prompts, seeds or SEEDS[: len(prompts)], batch_size)


@cache
def plain_tokens(sampling: Sampling, dtype: torch.dtype = torch.float64) -> Tensor:
    """The tokens of plain decoding, one image at a time."""
    return decode(tiny_target(sampling.cfg_scale, dtype), NoDrafter(), sampling, 1).tokens


class ByLikelihood:
    """Proposes the likeliest codes, with or without the laws they come from."""

    def __init__(self, needs_draft_law: bool = False) -> None:
        self.needs_draft_law = needs_draft_law

    def sample_scores(self, log_q: Tensor, nodes: Tensor, depth: int) -> Tensor:
        return log_q

    def topk_scores(self, log_q: Tensor, depth: int) -> Tensor:
        return log_q.log_softmax(-1)


def random_parents(generator: torch.Generator, batch: int, size: int) -> Tensor:
    """[B, N] of random trees, whose last node is padding."""
    parents = torch.stack([torch.randint(max(node, 1), (batch,), generator=generator) for node in range(size)], dim=1)
    parents[:, 0], parents[:, -1] = -1, PADDING
    return parents


def random_verdict(generator: torch.Generator, tree: DraftTree) -> Verdict:
    """The path to a random node of each row."""
    nodes = torch.multinomial((~tree.is_padding).float(), 1, generator=generator)[:, 0]
    paths = [tree.ancestors[row, node].nonzero().flatten() for row, node in enumerate(nodes)]
    accepted = torch.tensor([len(path) - 1 for path in paths])
    padded = torch.nn.utils.rnn.pad_sequence(paths, batch_first=True, padding_value=-1)
    return Verdict(padded, accepted, torch.randint(CODES, accepted.shape, generator=generator))
