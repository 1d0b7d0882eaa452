"""How much other processes disturb a run, on a machine whose counters are given."""

from types import SimpleNamespace

import pytest

from lantern.runtime import cores as cpu_contention
from lantern.runtime.cores import CpuContention


@pytest.mark.parametrize(("used", "needed", "expected"), [
    (5, None, 5), (5, 2, 0), (7, 2, 1), (7.5, 2, 1.5), (5, 8, 5), (5, 16, 5),
])  # fmt: skip
def test_what_others_use_of_spare_cores_does_not_count(used, needed, expected, monkeypatch):
    """Catches a host of many cores on which every image counts as disturbed, and one whose cores all are taken on which
    none does."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(cpu_contention, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(cpu_contention, "_busy_s", lambda: used * clock.now)
    monkeypatch.setattr(cpu_contention, "_own_s", lambda: 0.0)
    monkeypatch.setattr(cpu_contention, "usable_cores", lambda: list(range(8)))
    others = CpuContention()
    clock.now = 10.0
    assert others.cores(*[needed] if needed else []) == pytest.approx(expected)
    made_on_a_gpu = SimpleNamespace(is_cuda=needed is not None)
    if needed in (None, cpu_contention.GPU_CORES):
        assert others.cores_beside(made_on_a_gpu) == pytest.approx(expected)
