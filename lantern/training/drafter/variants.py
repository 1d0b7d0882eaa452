"""The drafter that DrafterTask distils: its network, how that starts, and its config."""

from collections.abc import Sequence

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lantern.drafters.eagle.feature_drafter import require_layers
from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.loading import drafter_folder, load_network
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import feed_forward_dim
from lantern.types import Target

START = "task.start_from"  # the config key of a drafter to train further
WIDTH_MULTIPLE = 64  # of feed-forward widths
RIDGE = 0.01  # regularisation of least squares, relative to the inputs' variance


def new_network(
    target: Target, num_layers: int, layers: Sequence[int], adds_layers: bool = False, input_norms: bool = True
) -> EagleNetwork:  # fmt: skip
    """EAGLE's, to be trained."""
    require_layers(target, layers)
    network = EagleNetwork(*layer_sizes(target), layers=layers, adds_layers=adds_layers, input_norms=input_norms)
    return deepened(target, initialised(target, network), num_layers)


def loaded_network(checkpoint: str, target: Target, num_layers: int = 1) -> EagleNetwork:
    """A drafter's, to be trained further."""
    return deepened(target, load_network(drafter_folder(checkpoint, setting=START), target, START), num_layers)


def describe(network: EagleNetwork, target: Target) -> dict:
    """The config of a drafter in the format of lantern.drafters.loading, with the hash of its target's weights."""
    reads = network.reads
    return {
        "dim": network.fc.out_features,
        "num_heads": network.attention.num_heads,
        "hidden_dim": network.feed_forward.w1.out_features,
        "vocab_size": target.vocab_size,
        "target_hash": target.weights_hash,
        **({"layers": list(reads.layers), "adds_layers": reads.adds} if reads.layers else {}),
        "eps": network.ffn_norm.eps,
        **({} if network.embed_weight is None else {"embedding_rows": len(network.embed_weight)}),
        **({"normed": True} if network.attention_norm else {}),
        **({"input_norms": True} if network.input_norms else {}),
        **({"num_layers": network.num_layers} if network.deeper else {}),
    }


def layer_sizes(target: Target) -> tuple[int, int, int]:
    """Width, heads and feed-forward width of a drafter layer: LlamaGen's, or for others heads as wide as theirs."""
    dim = target.embed_weight.shape[1]
    if isinstance(target, LlamaGenTarget):
        layer = target.transformer.layers[-1]
        return dim, layer.attention.num_heads, layer.feed_forward.w1.out_features
    return dim, dim // target.rotation.shape[-1], feed_forward_dim(dim, WIDTH_MULTIPLE)


@torch.no_grad()
def initialised(target: Target, network: EagleNetwork) -> EagleNetwork:
    """With a copy of LlamaGen's last layer, and zeros for output projections: it starts as a linear drafter."""
    if isinstance(target, LlamaGenTarget):
        layer = target.transformer.layers[-1]
        network.attention.wqkv.weight.copy_(layer.attention.wqkv.weight * layer.attention_norm.weight)
        network.ffn_norm.load_state_dict(layer.ffn_norm.state_dict())
        network.feed_forward.load_state_dict(layer.feed_forward.state_dict())
    network.attention.wo.weight.zero_()
    network.feed_forward.w2.weight.zero_()
    return network


@torch.no_grad()
def deepened(target: Target, network: EagleNetwork, num_layers: int) -> EagleNetwork:
    """With num_layers at least, added as the identity: LlamaGen's last one with its output projections at zero."""
    while network.num_layers < num_layers:
        block = network.append_layer()
        if isinstance(target, LlamaGenTarget):
            block.load_state_dict(target.transformer.layers[-1].state_dict())
        block.attention.wo.weight.zero_()
        block.feed_forward.w2.weight.zero_()
    return network


@torch.no_grad()
def start_linear(task: pl.LightningModule, fc: nn.Linear, inputs: Tensor, outputs: Tensor) -> None:
    """Sets a layer to the least-squares map of inputs [B R, T, I] to outputs [B R, T, O] of all processes."""
    rows = task.all_gather(torch.cat([inputs, outputs], dim=-1).flatten(0, 1).float()).flatten(0, -2)
    weight, bias = least_squares(*rows.split([fc.in_features, fc.out_features], dim=-1))
    fc.weight.copy_(task.trainer.strategy.broadcast(weight.cpu()))  # bitwise equal on all processes
    fc.bias.copy_(task.trainer.strategy.broadcast(bias.cpu()))


def least_squares(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """inputs [n, I], outputs [n, O] -> weight [O, I], bias [O] of the ridge regression on standardised inputs."""
    inputs, outputs = inputs.double(), outputs.double()
    mean, scale = inputs.mean(0), inputs.std(0).clamp(min=1e-4)
    z = (inputs - mean) / scale
    gram = z.T @ z + RIDGE * len(z) * torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    weight = torch.linalg.solve(gram, z.T @ (outputs - outputs.mean(0))).T / scale  # [O, I]
    return weight.float(), (outputs.mean(0) - weight @ mean).float()
