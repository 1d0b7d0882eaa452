"""The drafters that DrafterTask can distil: for each its network, initialisation and teacher-forced passes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from lantern.drafters.eagle.feature_drafter import require_layers
from lantern.drafters.eagle.network import EagleNetwork, ParallelNetwork
from lantern.drafters.loading import PARALLEL, drafter_folder, load_network, load_parallel_network, read_drafter
from lantern.errors import LanternError, is_whole
from lantern.models.checkpoints import save_weights
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import FeedForward, feed_forward_dim
from lantern.training.recipe import Recipe
from lantern.training.unroll import Unroll, parallel_passes, unroll
from lantern.types import Target

START = "task.start_from"  # the config key of a drafter to train further
WIDTH_MULTIPLE = 64  # of feed-forward widths


class Student(Protocol):
    """A drafter variant in distillation."""

    levels: int | None  # passes that its network has weights for; None: any number

    def build(
        self, target: Target, layers: Sequence[int], adds_layers: bool = False
    ) -> nn.Module: ...  # whose inputs it reads; see Recipe
    def load(self, checkpoint: str, target: Target) -> nn.Module: ...  # a drafter to train further
    def passes(
        self, network: nn.Module, embeddings: Tensor, features: Tensor, rotation: Tensor, roots: Sequence[Tensor]
    ) -> Iterator[Tensor]: ...  # as decoding runs them: see unroll()
    def training_passes(self, recipe: Recipe) -> Unroll: ...  # LanternError for a recipe of another kind of drafter
    def config(self, network: nn.Module) -> dict: ...  # loader arguments beside the layer's sizes


class EagleStudent:
    """EAGLE, unrolled on its own features: pass d reads the outputs of pass d - 1."""

    levels = None
    passes = staticmethod(unroll)

    def __init__(self, width_factor: int = 1) -> None:
        """width_factor: of the feed-forward part, over that of the target's layers. Raises LanternError for others than
        whole numbers from 1 on."""
        if not is_whole(width_factor) or width_factor < 1:
            raise LanternError(f"distil.student.width_factor={width_factor!r}; give a whole number, 1 at least")
        self.width_factor = width_factor

    def build(self, target: Target, layers: Sequence[int], adds_layers: bool = False) -> EagleNetwork:
        if layers:
            require_layers(target, layers)
        network = EagleNetwork(*layer_sizes(target), layers=layers, adds_layers=adds_layers)
        initialise(target, network)
        return self._as_wide(network, target)

    def load(self, checkpoint: str, target: Target) -> EagleNetwork:
        """A drafter to train further, widened if it is narrower than asked."""
        folder = drafter_folder(checkpoint, target, setting=START)
        return self._as_wide(load_network(folder, target, START), target)

    def _as_wide(self, network: EagleNetwork, target: Target) -> EagleNetwork:
        width = self.width_factor * layer_sizes(target)[2]
        if self.width_factor > 1 and network.feed_forward.w1.out_features < width:  # else it stays as it was made
            network.feed_forward = widened(network.feed_forward, width)
        return network

    def training_passes(self, recipe: Recipe) -> Unroll:
        return recipe.unroll or self.passes

    def config(self, network: EagleNetwork) -> dict:
        own = {} if network.embed_weight is None else {"embedding_rows": len(network.embed_weight)}
        reads = network.reads
        layers = {"layers": list(reads.layers), "adds_layers": reads.adds} if reads.layers else {}
        return {"eps": network.ffn_norm.eps, **own, **layers}


class ParallelStudent:
    """The parallel drafter, all levels from the root's pair."""

    passes = staticmethod(parallel_passes)

    def __init__(self, levels: int) -> None:
        self.levels = levels

    def build(self, target: Target, layers: Sequence[int], adds_layers: bool = False) -> ParallelNetwork:
        network = ParallelNetwork(*layer_sizes(target), self.levels)
        initialise(target, network)
        return network

    def load(self, checkpoint: str, target: Target) -> ParallelNetwork:
        """A parallel drafter, or an EAGLE drafter of features alone, whose layer and input layer then initialise all
        levels."""
        folder = drafter_folder(checkpoint, target, PARALLEL, START)
        if "levels" in read_drafter(folder)[1]:
            network = load_parallel_network(folder, target, START)
            if (found := len(network.entrances)) != self.levels:
                raise LanternError(f"{START}={checkpoint} has {found} levels; give distil.student.levels={found}")
            return network
        network, eagle = ParallelNetwork(*layer_sizes(target), self.levels), load_network(folder, target, START)
        _check_start(checkpoint, eagle, network)
        for part in ("fc", "attention", "ffn_norm", "feed_forward"):
            getattr(network, part).load_state_dict(getattr(eagle, part).state_dict())
        for layer in network.ahead:
            layer.load_state_dict(network.fc.state_dict())
        return network

    def training_passes(self, recipe: Recipe) -> Unroll:
        if recipe.unroll or recipe.layers or recipe.depth != self.levels:
            of_eagle = " of EAGLE" if recipe.unroll or recipe.layers else ""
            raise LanternError(
                f"this recipe has {recipe.depth} passes{of_eagle}, drafter=parallel one "
                f"for each of its {self.levels} levels; give recipe=feature_lk or recipe.depth={self.levels}"
            )
        return self.passes

    def config(self, network: ParallelNetwork) -> dict:
        return {"levels": len(network.entrances)}


def _check_start(checkpoint: str, eagle: EagleNetwork, network: ParallelNetwork) -> None:
    """Raises LanternError for an EAGLE drafter of which a parallel one would keep a part alone."""
    if eagle.reads.layers:
        raise LanternError(
            f"{START}={checkpoint} reads the target's layers {list(eagle.reads.layers)}, drafter=parallel its features "
            f"alone; give a drafter of recipe=feature_lk, or leave {START} out"
        )
    if eagle.embed_weight is not None:
        raise LanternError(
            f"{START}={checkpoint} has an embedding of its own, drafter=parallel reads the target's; leave {START} out"
        )
    found, wanted = (part.feed_forward.w1.out_features for part in (eagle, network))
    if found != wanted:
        raise LanternError(
            f"{START}={checkpoint} has a feed-forward part of width {found}, drafter=parallel one of {wanted}; give a "
            f"drafter with distil.student.width_factor=1, or leave {START} out"
        )


def save_drafter(folder: Path, network: EagleNetwork | ParallelNetwork, student: Student, target: Target) -> None:
    """Writes a drafter in the format of lantern.drafters.loading, with the hash of its target's weights."""
    config = {
        "dim": network.fc.out_features,
        "num_heads": network.attention.num_heads,
        "hidden_dim": network.feed_forward.w1.out_features,
        "vocab_size": target.vocab_size,
        "target_hash": target.weights_hash,
        **student.config(network),
    }
    save_weights(folder, network.state_dict(), config)


@torch.no_grad()
def widened(layer: FeedForward, width: int) -> FeedForward:
    """The same function in a wider layer: the units added change nothing until they are trained."""
    wide = FeedForward(layer.w1.in_features, width)
    wide.w2.weight.zero_()
    for own, given in zip(wide.parameters(), layer.parameters(), strict=True):
        own[: given.shape[0], : given.shape[1]] = given
    return wide


def layer_sizes(target: Target) -> tuple[int, int, int]:
    """Width, heads and feed-forward width of a drafter layer: those of LlamaGen's layers; of another target's drafter
    heads as wide as the target's."""
    dim = target.embed_weight.shape[1]
    if isinstance(target, LlamaGenTarget):
        layer = target.transformer.layers[-1]
        return dim, layer.attention.num_heads, layer.feed_forward.w1.out_features
    return dim, dim // target.rotation.shape[-1], feed_forward_dim(dim, WIDTH_MULTIPLE)


@torch.no_grad()
def initialise(target: Target, network: nn.Module) -> None:
    """Copies LlamaGen's last layer, and zeroes the output projections: the network starts as a linear drafter."""
    if isinstance(target, LlamaGenTarget):
        layer = target.transformer.layers[-1]
        network.attention.wqkv.weight.copy_(layer.attention.wqkv.weight * layer.attention_norm.weight)
        network.ffn_norm.load_state_dict(layer.ffn_norm.state_dict())
        network.feed_forward.load_state_dict(layer.feed_forward.state_dict())
    network.attention.wo.weight.zero_()
    network.feed_forward.w2.weight.zero_()
