"""The number format in which this machine trains fastest."""

import torch

from lantern.runtime.hardware import is_bf16_fast


def fastest_precision() -> str:
    """ "bf16-mixed" where bf16 matrix products have instructions of their own, else "32-true"."""
    return "bf16-mixed" if is_bf16_fast("cuda" if torch.cuda.is_available() else "cpu") else "32-true"
