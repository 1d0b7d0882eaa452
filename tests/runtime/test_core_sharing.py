"""Threads are given back while others use the cores, and come back; simulated load readings."""

from itertools import cycle
from types import SimpleNamespace

import pytest
import torch
from support.toy import PROMPTS, SEEDS, tiny_target

from lantern.acceptance.exact import Exact
from lantern.decoding import DecodingSetup, first_rounds, generate, steps
from lantern.drafters.jacobi.jacobi import Jacobi, redraw_coupled
from lantern.drafters.jacobi.starts import Nearest
from lantern.row_parallel import RowParallel
from lantern.runtime import cores as module
from lantern.runtime.cores import WINDOW_S, CoreSharing, CpuContention, core_sharing
from lantern.sampling import Sampling
from lantern.verification.shared_noise import SharedNoise


class Machine:
    """A clock, and the cores that others use."""

    def __init__(self, used: float | None = 0.0) -> None:
        self.time, self.used = 0.0, used

    def cores(self) -> float | None:
        return self.used

    def sharing(self, cores: int = 4) -> CoreSharing:
        return CoreSharing(cores, lambda: self, lambda: self.time)


@pytest.fixture(autouse=True)
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("used", "threads"), [
    (0.3, 4), (0.7, 3), (2.2, 2), (9.0, 1), (None, 4),
])  # fmt: skip
def test_each_core_that_others_use_is_left_to_them_but_one(used, threads):
    """Catches threads that wait for one whose core is taken, and none at all on a busy machine."""
    machine = Machine(used)
    sharing = machine.sharing()
    for passed, expected in ((0.9 * WINDOW_S, 4), (0.1 * WINDOW_S, threads), (0, threads)):
        machine.time += passed  # the system's counters do not resolve less than a window
        assert sharing(torch.get_num_threads) == expected
        assert torch.get_num_threads() == 4


def test_threads_come_back_after_an_error():
    machine = Machine(3.0)
    sharing = machine.sharing()
    machine.time += WINDOW_S
    with pytest.raises(ZeroDivisionError):
        sharing(lambda: 1 / 0)
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_a_user_who_sets_the_threads_keeps_them(name, monkeypatch):
    for other in module.FIXING:
        monkeypatch.delenv(other, raising=False)
    core_sharing.cache_clear()
    assert isinstance(core_sharing(), CoreSharing)
    core_sharing.cache_clear()
    monkeypatch.setenv(name, "2")
    assert core_sharing() is None
    core_sharing.cache_clear()


def jacobi(target) -> Jacobi:
    return Jacobi(target, 4, Nearest(), redraw_coupled, Sampling())


def streamed(setup: DecodingSetup, prompts: list[str], seeds: list[int]) -> torch.Tensor:
    found = []
    for number, step in enumerate(steps(setup, prompts[0], seeds[0])):
        assert torch.get_num_threads() == 4, number  # the caller's own work between rounds
        found.append(step.tokens)
    return found[-1]


DRIVERS = {
    "generate": (jacobi, lambda *given: generate(*given, 3).tokens),
    "steps": (jacobi, streamed),
    "first_rounds": (jacobi, lambda *given: torch.tensor([len(one.paths) for one in first_rounds(*given, 9)])),
    "rows": (lambda target: RowParallel(2, 1), lambda *given: generate(*given, 3).tokens),
}


@pytest.mark.parametrize("driver", DRIVERS)
def test_tokens_do_not_change_with_the_threads(monkeypatch, driver):
    """Catches decoding that does not adapt, or whose result depends on the load."""
    make, decode = DRIVERS[driver]
    target, machine = tiny_target(dtype=torch.float32), Machine()
    loads = cycle([0, 1, 2, 3, 3])

    def clock() -> float:  # at each round: the load changes, a window has passed
        machine.used = next(loads)
        machine.time += WINDOW_S
        return machine.time

    setup = DecodingSetup(target, make(target), SharedNoise(), Exact(), Sampling())
    before = decode(setup, PROMPTS, SEEDS)
    sharing = CoreSharing(4, lambda: machine, clock)
    monkeypatch.setattr(module, "core_sharing", lambda: sharing)
    law, used = Sampling.law, set()
    monkeypatch.setattr(Sampling, "law", lambda *given: used.add(torch.get_num_threads()) or law(*given))
    assert torch.equal(decode(setup, PROMPTS, SEEDS), before)
    assert used == {1, 2, 3, 4}


@pytest.mark.parametrize(("used", "needed", "expected"), [(5, None, 5), (5, 2, 0), (7.5, 2, 1.5)])
def test_what_others_use_of_spare_cores_does_not_count(used, needed, expected, monkeypatch):
    """Catches a host of many cores on which every image counts as disturbed, or none."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(module, "_busy_s", lambda: used * clock.now)
    monkeypatch.setattr(module, "process_time", lambda: 0.0)
    monkeypatch.setattr(module, "usable_cores", lambda: list(range(8)))
    others = CpuContention()
    clock.now = 10.0
    assert others.cores(needed) == pytest.approx(expected)
