"""What the names of machines in tables say of their processors."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from lantern.runtime import hardware


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
    assert hardware.vector_instructions() == expected
    assert hardware.is_bf16_fast() is (expected in ("AMX", "AVX-512 with bf16"))
    assert hardware.device_name().endswith(f"cores, {expected})")


def test_a_machine_with_a_gpu_names_the_device_that_is_used(monkeypatch):
    """Catches timings of a processor that stand under a GPU's name."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: f"GPU {device or 'current'}")
    assert [hardware.device_name(device) for device in ("auto", "cuda:1")] == ["GPU current", "GPU cuda:1"]
    assert "cores" in hardware.device_name("cpu")


@pytest.mark.parametrize(("numbers", "expected"), [
    ({}, 0), ({"LOCAL_RANK": 3, "SLURM_LOCALID": 1}, 3), ({"SLURM_LOCALID": 2}, 2),
    ({"LANTERN_POINT": 6, "SLURM_LOCALID": 0}, 2),  # a sweep in one allocation, on four GPUs
])  # fmt: skip
def test_processes_side_by_side_take_gpus_of_their_own(numbers, expected, monkeypatch):
    """Catches evaluations that all take the first GPU, and a number beyond the GPUs that the process may see."""
    for name in hardware.LOCAL_NUMBERS:
        monkeypatch.delenv(name, raising=False)
    for name, number in numbers.items():
        monkeypatch.setenv(name, str(number))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for count in (4, 1):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert hardware.resolve_device("auto") == torch.device("cuda", expected % count)


class NVML(ModuleType):
    """nvidia-ml-py on a machine whose GPUs' processes are listed by UUID; None: the driver does not tell."""

    class NVMLError(Exception): ...

    def __init__(self, processes: dict[str, list[int] | None]) -> None:
        super().__init__("pynvml")
        self.processes, self.is_ready = processes, False

    def nvmlInit(self) -> None:  # noqa: N802
        self.is_ready = True

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        assert self.is_ready
        return uuid

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[int]:  # noqa: N802
        if self.processes[handle] is None:
            raise self.NVMLError
        return self.processes[handle]


@pytest.mark.parametrize(("processes", "others"), [([7], 0), ([7, 8, 9], 2), ([], None), (None, None)])
def test_other_processes_on_a_gpu_are_counted_where_nvml_tells(processes, others, monkeypatch):
    """Catches this process counted as another one, those of another GPU, and a missing or mute NVML that ends a run."""
    device = torch.device("cuda", 1)
    uuids = lambda device: SimpleNamespace(uuid={0: "first", 1: "second"}[device.index])  # noqa: E731
    monkeypatch.setattr(torch.cuda, "get_device_properties", uuids)
    monkeypatch.setitem(sys.modules, "pynvml", NVML({"GPU-first": [1, 2, 3, 4], "GPU-second": processes}))
    assert hardware.gpu_sharers(device) == others
    assert hardware.gpu_sharers(torch.device("cpu")) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert hardware.gpu_sharers(device) is None
