"""Muon for hidden matrices, AdamW for everything else, as one optimizer that Lightning steps, clips and saves."""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer


class Together(Optimizer):
    """Several optimizers behind one: shared parameter groups, shared state, stepped in order."""

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
    model: nn.Module, lr: float, muon_lr: float, weight_decay: float, others: Iterable[nn.Parameter] = ()
) -> Together:
    """Muon (Jordan et al. 2024, its rate scaled to AdamW's update size) on the matrices inside model.layers; AdamW on
    embeddings, head, norms and the parameters in `others`."""
    hidden = [weight for weight in model.layers.parameters() if weight.dim() == 2]
    chosen = {id(weight) for weight in hidden}
    rest = [weight for weight in (*model.parameters(), *others) if id(weight) not in chosen]
    matrices = [weight for weight in rest if weight.dim() == 2]
    vectors = [weight for weight in rest if weight.dim() != 2]
    adamw = AdamW(
        [dict(params=matrices, weight_decay=0.0), dict(params=vectors, weight_decay=0.0)], lr=lr, betas=(0.9, 0.95)
    )
    return Together(Muon(hidden, lr=muon_lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"), adamw)
