"""What Lightning trains on by default, and the precision that is fastest there."""

import torch

from lantern.runtime.hardware import is_bf16_fast


def default_accelerator(device: str) -> str:
    """ "cuda" with such a GPU unless the device, or accelerator, is "cpu", else "cpu": as resolve_device. Lightning's
    own choice on a Mac, mps, has no float64."""
    return "cuda" if torch.cuda.is_available() and device != "cpu" else "cpu"


def fastest_precision(accelerator: str) -> str:
    """ "bf16-mixed" where this trainer.accelerator has hardware instructions for bf16 products, else "32-true"."""
    return "bf16-mixed" if is_bf16_fast(default_accelerator(accelerator)) else "32-true"
