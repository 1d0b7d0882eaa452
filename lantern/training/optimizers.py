"""Muon for hidden matrices, AdamW for everything else, as one optimizer that Lightning steps, clips and saves."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from lantern.errors import check_least
from lantern.runtime.hardware import is_bf16_fast


class Muon(torch.optim.Muon):
    """torch's Muon, but with products in a dtype that is fast on the device. torch always uses bfloat16: without
    hardware support, these products take longer than the rest of a step. Updates are scaled to AdamW's size."""

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group)

    def _update(self, weight: nn.Parameter, group: dict) -> None:
        state, grad, momentum = self.state[weight], weight.grad, group["momentum"]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        average = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        update = orthogonalise(grad.lerp(average, momentum), group["ns_coefficients"], group["ns_steps"], group["eps"])
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(update, alpha=-0.2 * max(weight.shape) ** 0.5 * group["lr"])


def orthogonalise(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Moves all singular values of the matrix [O, I] to between about 0.7 and 1.2 by Newton-Schulz steps (Jordan et al.
    2024). They run in bfloat16 if it is fast and the matrix is float32, otherwise in the matrix's dtype."""
    a, b, c = coefficients
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x.bfloat16() if x.dtype is torch.float32 and is_bf16_fast(x.device) else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x


def with_own_rates(optimizer: Optimizer) -> Optimizer:
    """Makes the optimizer keep its own rates and weight decays when it loads a checkpoint's state; returns it."""
    own = [{"lr": group["lr"], "weight_decay": group["weight_decay"]} for group in optimizer.param_groups]

    def restore(loaded: Optimizer) -> None:
        for group, values in zip(loaded.param_groups, own, strict=True):
            group |= values | {"initial_lr": values["lr"]}  # what the schedule scales

    optimizer.register_load_state_dict_post_hook(restore)
    return optimizer


class ChainedOptimizer(Optimizer):
    """Several optimizers as one for Lightning, with shared parameter groups and state, stepped in order."""

    def __init__(self, *parts: Optimizer) -> None:
        self.parts = parts
        self.sizes = [len(part.param_groups) for part in parts]
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part, size in zip(self.parts, self.sizes, strict=True):
            part.state = self.state
            part.param_groups = [next(groups) for _ in range(size)]

    def load_state_dict(self, state_dict: dict) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def step(self, closure=None) -> Tensor | None:
        loss = closure() if closure is not None else None
        for part in self.parts:
            part.step()
        return loss


def muon_with_adamw(
    model: nn.Module, hidden: Iterable[nn.Parameter], lr: float, muon_lr: float, weight_decay: float
) -> Optimizer:
    """Muon on the `hidden` matrices of the model; AdamW without weight decay on the rest: embeddings, head, norms,
    biases. A checkpoint does not change these rates."""
    hidden = list(hidden)
    check_least("task", 0, lr=lr, muon_lr=muon_lr, weight_decay=weight_decay)
    chosen = {id(weight) for weight in hidden}
    rest = [weight for weight in model.parameters() if id(weight) not in chosen]
    muon, adamw = Muon(hidden, muon_lr, weight_decay), AdamW(rest, lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    return with_own_rates(ChainedOptimizer(muon, adamw))


def matrices(module: nn.Module) -> list[nn.Parameter]:
    """The two-dimensional parameters, which Muon is meant for."""
    return [weight for weight in module.parameters() if weight.dim() == 2]
