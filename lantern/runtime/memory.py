"""Memory estimate of a batch, checked before decoding: the target's cache (by image length) and recorded
passes, the drafter's state, and a round's tables over the codebook (by tree nodes)."""

from collections.abc import Iterator
from pathlib import Path

import torch

from lantern.errors import LanternError
from lantern.noise import AHEAD
from lantern.types import Drafter, Target

# Float32 tables [N, V] alive at once in a round, at most. Ratio verification holds logits, p, q, both remainders,
# p~, its residual, and two temporaries
LAWS = 9
MAX_NODES = 1024  # of a round: index tables of a tree grow by the third power of its depth


def table_bytes(vocab_size: int, num_nodes: int, depth: int) -> int:
    """Bytes of one image's tables over the codebook in a round, noise included."""
    return 4 * vocab_size * (LAWS * num_nodes + depth + 1 + AHEAD)


def check_nodes(count: int, setting: str) -> None:
    """Raises LanternError for more draft tokens a round than are useful, before tables of that size are built.
    setting: what determines the count, with its value."""
    if count > MAX_NODES:
        raise LanternError(f"{setting} drafts {count} tokens a round; give a size that drafts {MAX_NODES} at most")


def check_drafted(target: Target, drafter: Drafter, batch_size: int, setting: str = "batch_size") -> None:
    """check_memory of what this drafter drafts and holds."""
    check_memory(target, drafter.num_nodes, drafter.depth, batch_size, drafter.image_bytes, setting)


def check_memory(
    target: Target, num_nodes: int, depth: int, batch_size: int, kept: int = 0, setting: str = "batch_size"
) -> None:  # fmt: skip
    """Raises LanternError, with the largest batch that fits, if batch_size images do not.

    num_nodes, depth: of the largest tree, root included; kept: bytes per image of the drafter's state; setting: the
    config key of batch_size.
    """
    free = available_memory(target.codebook.device)
    if free is None:
        return
    image = target.image_bytes(num_nodes) + table_bytes(target.vocab_size, num_nodes, depth) + kept
    free += target.held_bytes
    if batch_size * image > free:
        raise LanternError(
            f"{setting}={batch_size} needs {batch_size * image / 2**30:.1f} GiB for caches and laws and "
            f"{free / 2**30:.1f} GiB are free; {free // image} images at once fit, with trees of {num_nodes} nodes"
        )


def check_main_memory(size: int, what: str, remedy: str) -> None:
    """Raises LanternError with the remedy if so many bytes are not free in main memory."""
    free = available_memory(torch.device("cpu"))
    if free is not None and size > free:
        raise LanternError(
            f"{what} need {size / 2**30:.1f} GiB of main memory and {free / 2**30:.1f} GiB are free; {remedy}"
        )


def available_memory(device: torch.device) -> int | None:
    """Bytes free on a GPU, or in main memory within this job's limits; None where the system does not report them."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + unused_bytes(device)
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return None
    return min([free, *left_in_groups()])


def unused_bytes(device: torch.device) -> int:
    """Bytes of a GPU that torch holds and has not given out. Those in the private pools of CUDA graphs are left out:
    replays alone may use them."""
    index = torch.cuda.current_device() if device.index is None else device.index
    held = [part for part in torch.cuda.memory_snapshot(include_traces=False) if part["device"] == index]
    own = [part for part in held if part["segment_pool_id"] == (0, 0)]
    return sum(part["total_size"] - part["allocated_size"] for part in own)


def left_in_groups(groups: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Bytes left of each memory limit on this process, such as a container's or a Slurm job's: the control groups (v2
    or v1) that it is in. What they hold of files counts as free, as in MemAvailable."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = mount / controllers
        limit, used = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
        own = root / path.lstrip("/")
        for folder in (own, *(above for above in own.parents if above.is_relative_to(root))):
            try:  # "max" is no limit; a container does not see the groups above its own
                left = int((folder / f"memory.{limit}").read_text()) - int((folder / f"memory.{used}").read_text())
                counted = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):
                continue
            files = (f"{'total_' if controllers else ''}{kind}_file" for kind in ("inactive", "active"))
            yield max(0, left + sum(int(counted.get(name, 0)) for name in files))
