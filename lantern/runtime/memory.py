"""One estimate of the memory that decoding takes: weights, keys and values, and a round's tables over the codebook."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from lantern.errors import LanternError
from lantern.noise import AHEAD
from lantern.types import Target

TABLES = 11  # float32 tables [N, V] alive at once in a round, at most: nine of ratio verification, a window's two
MAX_NODES = 1024  # of a round: index tables of a tree grow by the third power of its depth
WEIGHTED_PARTS = "transformer", "vocabulary", "conditioner", "tokenizer"  # of a target, with weights


class Estimate(NamedTuple):
    """Bytes. A drafter's weights and CUDA graphs come on top."""

    weights: int
    caches: int  # keys and values
    tables: int  # laws, scores and noise of a round

    @classmethod
    def of(cls, target: Target, num_nodes: int, batch_size: int) -> "Estimate":
        """num_nodes: of the largest tree, root included. The target may be on the meta device."""
        weights = sum(num_bytes(getattr(target, name, None)) for name in WEIGHTED_PARTS)
        tables = 4 * target.vocab_size * (TABLES * num_nodes + AHEAD)
        return cls(weights, batch_size * target.image_bytes(num_nodes), batch_size * tables)


def num_bytes(part: object) -> int:
    """Of a module's parameters and buffers, or of an object's own tensors."""
    of_module = (*part.parameters(), *part.buffers()) if isinstance(part, nn.Module) else None
    tensors = getattr(part, "__dict__", {}).values() if of_module is None else of_module
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor))


def check_nodes(count: int, setting: str) -> None:
    """Refuses more draft tokens a round than are useful, before their tables are built. setting: name and value."""
    if count > MAX_NODES:
        raise LanternError(f"{setting} drafts {count} tokens a round; give a size that drafts {MAX_NODES} at most")


def check_memory(target: Target, num_nodes: int, batch_size: int, setting: str = "batch_size") -> None:
    """setting: the config key of batch_size."""
    free = available_memory(target.codebook.device)
    if free is None:
        return
    image = sum(Estimate.of(target, num_nodes, 1)[1:])
    free += target.held_bytes
    if batch_size * image > free:
        raise LanternError(
            f"{setting}={batch_size} needs {batch_size * image / 2**30:.1f} GiB for caches and laws and "
            f"{free / 2**30:.1f} GiB are free; {free // image} images at once fit, with trees of {num_nodes} nodes"
        )


def check_main_memory(size: int, what: str, remedy: str) -> None:
    free = available_memory(torch.device("cpu"))
    if free is not None and size > free:
        raise LanternError(f"{what} need {size / 2**30:.1f} GiB of memory, {free / 2**30:.1f} GiB are free; {remedy}")


@contextmanager
def memory_errors_explained() -> Iterator[None]:
    """Turns a lack of memory on a GPU, which no estimate foresaw, into a LanternError with remedies."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).splitlines()[0]
        raise LanternError(f"the GPU's memory is full: {reason}; give a smaller batch_size or tree") from error


def available_memory(device: torch.device) -> int | None:
    """Bytes free on a GPU, those that torch holds unused included, or in main memory within this job's limits; None
    where the system does not report them."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return None
    return min([free, *left_in_groups()])


def left_in_groups(groups: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Bytes left of each memory limit on this process, such as a container's or a Slurm job's: its control group (v2)
    and those above. What they hold of files counts as free, as in MemAvailable."""
    try:
        path = next(line.removeprefix("0::/") for line in groups.read_text().splitlines() if line.startswith("0::/"))
    except (OSError, StopIteration):
        return
    own = mount / path
    for folder in (own, *(above for above in own.parents if above.is_relative_to(mount))):
        try:  # "max" is no limit; a container does not see the groups above its own
            left = int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text())
            held = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        yield max(0, left + int(held.get("inactive_file", 0)) + int(held.get("active_file", 0)))
