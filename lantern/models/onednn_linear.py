"""Products with weights that oneDNN has laid out for this processor: 1.5 to 3 times as fast as plain ones at the few
rows of a round, and a row's product does not depend on the rows beside it. Kept beside the weights, as large again."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = 16  # what the layout is chosen for; it serves every number


def linear(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """[M, I] -> [M, O] for a weight [O, I]; plain where it lies on no CPU, where this build of torch cannot pack, and
    where gradients are to flow through it."""
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16) or not _can_pack():
        return partial(F.linear, weight=weight)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
    product = torch.ops.mkldnn._linear_pointwise.default

    def packed(x: Tensor) -> Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            return F.linear(x, weight)
        return product(x, laid_out, None, "none", [], "")

    return packed


def _can_pack() -> bool:
    ops = ("mkldnn::_reorder_linear_weight", "mkldnn::_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(map(torch._C._dispatch_has_kernel, ops))
