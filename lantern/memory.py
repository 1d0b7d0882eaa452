"""Whether a batch fits in memory, reckoned before anything is decoded: what an image holds grows with the length of the
cache and the nodes of the tree, and nothing else is allocated in proportion to the batch."""

import torch

from lantern.errors import LanternError
from lantern.noise import AHEAD
from lantern.types import Drafter, Target

LAWS = 6  # tables [N, V] of float32 that are alive at once in a round: logits, scores, p, log p, noise, their sum


def bytes_per_image(target: Target, drafter: Drafter) -> int:
    """Of the target's cache, and of a round's tables over the codebook, the rows of noise included."""
    tables = LAWS * drafter.num_nodes + drafter.depth + 1 + AHEAD
    return target.image_bytes(drafter.num_nodes) + 4 * target.vocab_size * tables


def check_memory(target: Target, drafter: Drafter, batch_size: int) -> None:
    """Raises LanternError with the largest batch that fits, if this one does not."""
    image, free = bytes_per_image(target, drafter), available_memory(target.codebook.device)
    free = free and free + target.held_bytes
    if free is not None and batch_size * image > free:
        raise LanternError(
            f"batch_size={batch_size} needs {batch_size * image / 2**30:.1f} GiB for caches and laws and "
            f"{free / 2**30:.1f} GiB are free; {free // image} images at once fit, "
            f"with trees of {drafter.num_nodes} nodes"
        )


def available_memory(device: torch.device) -> int | None:
    """Bytes free on a GPU, or in this machine's memory where the system says so."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return None
