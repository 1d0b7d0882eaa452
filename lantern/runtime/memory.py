"""Whether a batch fits in memory, reckoned before anything is decoded: by the target's cache, which grows with the
length of an image, what a drafter keeps, and the tables of a round over the codebook, which grow with the nodes of a
tree."""

import torch

from lantern.errors import LanternError
from lantern.noise import AHEAD
from lantern.types import Drafter, Target

# Tables [N, V] of float32 that are alive at once in a round, at most: where ratio verification judges every node's
# children these are logits, p, q, what is left of both, p~, its residual, and two on the way there
LAWS = 9


def table_bytes(vocab_size: int, num_nodes: int, depth: int) -> int:
    """Of a round of one image over the codebook, the rows of noise included."""
    return 4 * vocab_size * (LAWS * num_nodes + depth + 1 + AHEAD)


def check_drafted(target: Target, drafter: Drafter, batch_size: int) -> None:
    """check_memory of what this drafter drafts and holds."""
    check_memory(target, drafter.num_nodes, drafter.depth, batch_size, drafter.image_bytes)


def check_memory(target: Target, num_nodes: int, depth: int, batch_size: int, kept: int = 0) -> None:
    """For trees of at most num_nodes, the root included, and depth; kept: bytes of an image that its drafter holds.
    Raises LanternError with the largest batch that fits, if this one does not."""
    free = available_memory(target.codebook.device)
    if free is None:
        return
    image = target.image_bytes(num_nodes) + table_bytes(target.vocab_size, num_nodes, depth) + kept
    free += target.held_bytes
    if batch_size * image > free:
        raise LanternError(
            f"batch_size={batch_size} needs {batch_size * image / 2**30:.1f} GiB for caches and laws and "
            f"{free / 2**30:.1f} GiB are free; {free // image} images at once fit, with trees of {num_nodes} nodes"
        )


def available_memory(device: torch.device) -> int | None:
    """Bytes free on a GPU, or in this machine's memory where the system says so."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for what comes next
        return torch.cuda.mem_get_info(device)[0] + kept
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return None
