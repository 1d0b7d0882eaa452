"""What an accelerator would be sent, on a stand-in: the meta device, whose tensors have shapes and no values."""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Uploads(TorchDispatchMode):
    """Counts what the processor sends to a device that has shapes only."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        leaves = tree_leaves((args, kwargs))
        here = any(isinstance(leaf, Tensor) and leaf.is_cpu and leaf.dim() for leaf in leaves)
        there = any(isinstance(leaf, Tensor | torch.device) and is_meta(leaf) for leaf in leaves)
        self.count += here and there
        return operation(*args, **(kwargs or {}))


def is_meta(leaf: Tensor | torch.device) -> bool:
    return leaf.is_meta if isinstance(leaf, Tensor) else leaf.type == "meta"
