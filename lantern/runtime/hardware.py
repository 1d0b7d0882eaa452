"""Devices and dtypes: resolved from settings, their speed detected from the processor's instructions."""

import os
import platform
from pathlib import Path

import torch

from lantern.errors import LanternError
from lantern.runtime.cores import usable_cores

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
BF16_PROBES = {"AMX": "_is_amx_tile_supported", "AVX-512 with bf16": "_is_avx512_bf16_supported"}  # of torch.cpu


def is_bf16_fast(device: torch.device | str = "cpu") -> bool:
    """Whether the device has instructions for bfloat16 matrix products, and on a processor torch may use them."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return vector_instructions() in BF16_PROBES


def vector_instructions() -> str:
    """What decides how fast this processor's matrix products are: its instructions for bfloat16, or the widest vectors
    that torch's kernels use, which ATEN_CPU_CAPABILITY may restrict."""
    widest = torch.backends.cpu.get_cpu_capability()
    found = (name for name, probe in BF16_PROBES.items() if getattr(torch.cpu, probe, bool)())
    return next(found, widest) if widest.startswith("AVX512") else widest


def device_name(device: str = "auto") -> str:
    """The name of the accelerator that a setting `device` means, or the processor's, its usable cores and vectors."""
    if device.startswith(("auto", "cuda")) and torch.cuda.is_available():
        return torch.cuda.get_device_name(None if device == "auto" else device)
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name} ({(count := len(usable_cores()))} core{'s' * (count > 1)}, {vector_instructions()})"


def gpu_sharers(device: torch.device) -> int | None:
    """How many other processes are on a GPU, as NVML lists them: some may be idle. None on a CPU, where nvidia-ml-py is
    not installed, and in a container that hides processes."""
    if device.type != "cuda":
        return None
    try:
        import pynvml  # of nvidia-ml-py, which is optional

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        listed = len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except Exception:  # the package is not there, or NVML is mute
        return None
    return listed - 1 if listed else None  # this one is listed too, in a container by another number


def resolve_dtype(name: str, device: torch.device | str = "cpu") -> torch.dtype:
    """`auto` is bfloat16 where that is fast, else float32."""
    if name == "auto":
        return torch.bfloat16 if is_bf16_fast(device) else torch.float32
    if name not in DTYPES:
        raise LanternError(f"dtype={name} is unknown; give auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def allow_tf32(allowed: bool) -> None:
    """Sets whether a GPU may round the operands of float32 products and convolutions to a ten-bit mantissa."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


# cuDNN's attention plans each new length anew, tens of milliseconds; prefills and passes not recorded have many
torch.backends.cuda.enable_cudnn_sdp(False)
allow_tf32(False)  # full float32 by default on both devices, unlike torch's default for convolutions


# Numbers of this process on its machine, the first that is set: by launchers of trainings, for a point of a sweep by
# conf/launch, by Slurm and by submitit
LOCAL_NUMBERS = ("LOCAL_RANK", "LANTERN_POINT", "SLURM_LOCALID", "SUBMITIT_LOCAL_LOCALID")


def resolve_device(name: str) -> torch.device:
    """`auto` is a GPU by this process's number on its machine, else the CPU."""
    if name == "auto" and torch.cuda.is_available():
        number = next((int(os.environ[key]) for key in LOCAL_NUMBERS if key in os.environ), 0)
        return torch.device("cuda", number % torch.cuda.device_count())  # it may see one GPU alone
    if name == "auto":
        return torch.device("cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise LanternError(f"device={name} is not there ({str(error).splitlines()[0]}); use device=cpu") from error
    if (device := torch.device(name)).type not in ("cpu", "cuda", "meta"):
        raise LanternError(f"device={name} is not one that decoding runs on; use device=cpu")
    return device
