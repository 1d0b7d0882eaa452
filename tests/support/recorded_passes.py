"""A stand-in for CUDA graphs that replays what a pass asked of torch, operation by operation, on the memory it had."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

READS = torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default  # the latter in inference mode


class Recording(TorchDispatchMode):
    """Python runs once, the operations again and again: numbers that Python worked out stay what they were."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.replays = [], 0
        self._made: set[int] = set()  # memory that the recording gives its own results
        self._others: dict[int, list[torch.Tensor]] = {}  # what it knows of all other memory, by place

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation in READS:
            raise AssertionError("a value is read from the device while a pass is recorded")
        args, kwargs = tree_map_only(torch.Tensor, self._known, (args, kwargs or {}))
        result = operation(*args, **kwargs)
        places = {place(tensor) for tensor in tensors((args, kwargs))}
        fresh = [tensor for tensor in tensors(result) if place(tensor) not in places]
        self._made |= {place(tensor) for tensor in fresh}
        self.operations.append((operation, args, kwargs, fresh))
        return result

    def _known(self, tensor: torch.Tensor) -> torch.Tensor:
        if place(tensor) in self._made:
            return tensor
        alias = tensor.detach()
        self._others.setdefault(place(tensor), []).append(alias)
        return alias

    def replay(self) -> None:
        """Checks first that somebody else holds what is read: a graph does not keep it from being freed."""
        for aliases in self._others.values():
            storage = aliases[0].untyped_storage()
            held = torch._C._storage_Use_Count(storage._cdata) - len(aliases) - 1  # one is `storage`
            assert held > 0, f"{tuple(aliases[0].shape)} is read by a graph and held by nothing"
        for operation, args, kwargs, fresh in self.operations:
            places = {place(tensor) for tensor in tensors((args, kwargs))}
            made = [tensor for tensor in tensors(operation(*args, **kwargs)) if place(tensor) not in places]
            for kept, new in zip(fresh, made, strict=True):
                kept.copy_(new)
        self.replays += 1


def tensors(of: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(of) if isinstance(leaf, torch.Tensor)]


def place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Recorder:
    def __init__(self) -> None:
        self.made: list[Recording] = []

    def __call__(self, run):
        recording = Recording()
        with recording:
            run()
        self.made.append(recording)
        return recording.replay
