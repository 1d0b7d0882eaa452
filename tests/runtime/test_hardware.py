"""What the names of machines in tables say of their processors."""

import pytest
import torch

from lantern.identity import device_name
from lantern.runtime.hardware import LOCAL_NUMBERS, is_bf16_fast, resolve_device, vector_instructions


@pytest.mark.parametrize(("amx", "avx512_bf16", "capability", "expected"), [
    (True, True, "AVX512", "AMX"), (False, True, "AVX512", "AVX-512 with bf16"), (False, False, "AVX512", "AVX512"),
    (True, True, "AVX2", "AVX2"),  # as ATEN_CPU_CAPABILITY=avx2 asks for
])  # fmt: skip
def test_instructions_are_the_fastest_that_may_be_used(amx, avx512_bf16, capability, expected, monkeypatch):
    """Catches a table that hides which kind of processor it is of, and bfloat16 where a step takes far longer."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert vector_instructions() == expected
    assert is_bf16_fast() is (expected in ("AMX", "AVX-512 with bf16"))
    assert device_name().endswith(f"cores, {expected})")


def test_a_machine_with_a_gpu_names_the_device_that_is_used(monkeypatch):
    """Catches timings of a processor that stand under a GPU's name."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: f"GPU {device or 'current'}")
    assert [device_name(device) for device in ("auto", "cuda:1")] == ["GPU current", "GPU cuda:1"]
    assert "cores" in device_name("cpu")


@pytest.mark.parametrize(("numbers", "expected"), [
    ({}, 0),
    ({"LOCAL_RANK": 3, "SLURM_LOCALID": 1}, 3),
    ({"SLURM_LOCALID": 2}, 2),
    ({"LANTERN_POINT": 6, "SLURM_LOCALID": 0}, 2),  # a sweep in one allocation, on four GPUs
])  # fmt: skip
def test_processes_side_by_side_take_gpus_of_their_own(numbers, expected, monkeypatch):
    """Catches evaluations that all take the first GPU, and a number beyond the GPUs that the process may see."""
    for name in LOCAL_NUMBERS:
        monkeypatch.delenv(name, raising=False)
    for name, number in numbers.items():
        monkeypatch.setenv(name, str(number))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for count in (4, 1):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert resolve_device("auto") == torch.device("cuda", expected % count)
