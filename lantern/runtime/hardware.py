"""What the processor is fast at, detected and never assumed."""

import os

import torch

from lantern.errors import LanternError

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def is_bf16_fast(device: torch.device | str = "cpu") -> bool:
    """Whether bfloat16 matrix products have instructions of their own on this device."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    probes = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, probe, bool)() for probe in probes)


def resolve_dtype(name: str, device: torch.device | str = "cpu") -> torch.dtype:
    """`auto` is bfloat16 where that is fast, else float32. Raises LanternError for an unknown name, and for one that
    the device has no products of."""
    if name == "auto":
        return torch.bfloat16 if is_bf16_fast(device) else torch.float32
    if name not in DTYPES:
        raise LanternError(f"dtype={name} is unknown; give auto, {', '.join(DTYPES)}")
    one = torch.ones(1, 1, dtype=DTYPES[name], device=device)
    try:
        torch.mm(one, one)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise LanternError(f"dtype={name} does not work on device {device} ({reason}); use dtype=float32") from error
    return DTYPES[name]


def allow_tf32(asked: bool) -> None:
    """Whether a GPU may round the factors of float32 products and convolutions to ten bits."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = asked


allow_tf32(False)  # float32 is float32 on either device unless a run asks otherwise; torch's convolutions are not so


def resolve_device(name: str) -> torch.device:
    """`auto` is this process's GPU, the first if it is alone, else the CPU. LanternError for one that is not there."""
    if name == "auto" and torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))  # as every launcher numbers processes
    if name == "auto":
        return torch.device("cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise LanternError(f"device={name} is not there ({str(error).splitlines()[0]}); use device=cpu") from error
    return torch.device(name)
