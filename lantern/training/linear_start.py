"""The start of a drafter's input layer: the best linear drafter on the first batch, by ridge regression."""

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

RIDGE = 0.01  # regularisation, relative to the inputs' variance


@torch.no_grad()
def start_linear(task: pl.LightningModule, fc: nn.Linear, inputs: Tensor, outputs: Tensor) -> None:
    """Sets a layer of the task to the least-squares map of inputs [B R, T, I] to outputs [B R, T, O] of all
    processes."""
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
