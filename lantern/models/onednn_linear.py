"""Linear layers with weights prepacked by oneDNN: 1.5 to 3 times as fast at the few rows of a round, and a row's result
does not depend on the other rows. The packed copy doubles the weights' memory."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = 16  # the batch size that oneDNN packs for; any other works, too


def linear(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """[M, I] -> [M, O] for a weight [O, I]. F.linear off the CPU, in builds of torch that cannot pack, and under
    autograd."""
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16) or not _can_pack():
        return partial(F.linear, weight=weight)
    packed_weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
    product = torch.ops.mkldnn._linear_pointwise.default

    def packed(x: Tensor) -> Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            return F.linear(x, weight)
        return product(x, packed_weight, None, "none", [], "")

    return packed


def _can_pack() -> bool:
    ops = ("mkldnn::_reorder_linear_weight", "mkldnn::_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(map(torch._C._dispatch_has_kernel, ops))
