"""Muon for hidden matrices, AdamW for everything else, as one optimizer that Lightning steps, clips and saves."""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer


class Together(Optimizer):
    """Several optimizers as one, with shared parameter groups and state, stepped in order."""

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
) -> Together:
    """Muon (Jordan et al. 2024, its rate scaled to AdamW's update size) on the `hidden` matrices of the model; AdamW
    without weight decay on the rest: embeddings, head, norms, biases."""
    hidden = list(hidden)
    chosen = {id(weight) for weight in hidden}
    rest = [weight for weight in model.parameters() if id(weight) not in chosen]
    return Together(
        Muon(hidden, lr=muon_lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
        AdamW(rest, lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    )


def matrices(module: nn.Module) -> list[nn.Parameter]:
    """The two-dimensional parameters, which Muon is meant for."""
    return [weight for weight in module.parameters() if weight.dim() == 2]
