"""What is distilled: a drafter's network, how it starts, and how it is run at every position at once."""

from collections.abc import Iterator
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from lantern.drafters.eagle_network import EagleNetwork
from lantern.drafters.parallel_network import ParallelNetwork
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.training.unroll import at_once, unroll

Network = TypeVar("Network", bound=nn.Module)


class Student(Protocol):
    def build(self, target: LlamaGenTarget) -> nn.Module: ...
    def entrances(self, network: nn.Module) -> list[nn.Linear]: ...  # of each pass, from [embedding; feature]
    def passes(
        self, network: nn.Module, embeddings: Tensor, features: Tensor, rotation: Tensor, depth: int
    ) -> Iterator[Tensor]: ...  # see unroll()
    def config(self, network: nn.Module) -> dict: ...  # what its loader needs beside the layer's sizes


class EagleStudent:
    """Unrolled on its own features: pass d reads the outputs of pass d - 1."""

    def build(self, target: LlamaGenTarget) -> EagleNetwork:
        return start_as_last_layer(EagleNetwork(*layer_sizes(target)), target)

    def entrances(self, network: EagleNetwork) -> list[nn.Linear]:
        return [network.fc]

    def passes(
        self, network: EagleNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, depth: int
    ) -> Iterator[Tensor]:
        return unroll(network, embeddings, features, rotation, depth)

    def config(self, network: EagleNetwork) -> dict:
        return {}


class ParallelStudent:
    """All levels from the root's own pair: pass d reads what stands d rows before."""

    def __init__(self, levels: int) -> None:
        self.levels = levels

    def build(self, target: LlamaGenTarget) -> ParallelNetwork:
        return start_as_last_layer(ParallelNetwork(*layer_sizes(target), self.levels), target)

    def entrances(self, network: ParallelNetwork) -> list[nn.Linear]:
        return network.entrances

    def passes(
        self, network: ParallelNetwork, embeddings: Tensor, features: Tensor, rotation: Tensor, depth: int
    ) -> Iterator[Tensor]:
        return at_once(network, embeddings, features, rotation, depth)

    def config(self, network: ParallelNetwork) -> dict:
        return {"levels": len(network.entrances)}


def layer_sizes(target: LlamaGenTarget) -> tuple[int, int, int]:
    """Width, heads and hidden width of a drafter layer: those of the target's layers."""
    layer = target.transformer.layers[-1]
    return target.embed_weight.shape[1], layer.attention.num_heads, layer.feed_forward.w1.out_features


@torch.no_grad()
def start_as_last_layer(network: Network, target: LlamaGenTarget) -> Network:
    """The drafter's layer starts as the target's last one with outputs of zero, so that nothing it adds is noise."""
    layer = target.transformer.layers[-1]
    network.attention.wqkv.weight.copy_(layer.attention.wqkv.weight * layer.attention_norm.weight)
    network.ffn_norm.load_state_dict(layer.ffn_norm.state_dict())
    network.feed_forward.load_state_dict(layer.feed_forward.state_dict())
    network.attention.wo.weight.zero_()
    network.feed_forward.w2.weight.zero_()
    return network
