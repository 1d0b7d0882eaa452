"""The precision setting for Lightning that is fastest on this machine."""

import torch

from lantern.runtime.hardware import is_bf16_fast


def fastest_precision() -> str:
    """ "bf16-mixed" with hardware instructions for bf16 products, else "32-true"."""
    return "bf16-mixed" if is_bf16_fast("cuda" if torch.cuda.is_available() else "cpu") else "32-true"
