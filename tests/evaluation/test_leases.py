"""Leases: every piece is made, by one worker, unless its lease expires; a dead worker's pieces are made by others."""

import os
from pathlib import Path
from shutil import rmtree
from threading import Thread
from time import monotonic

import pytest

from lantern.evaluation.leases import BEATS, DONE, FREE, Leases, Piece, finish


class Hand:
    """A clock that a test sets, each at a time of its own: clocks of machines differ."""

    def __init__(self, time: float = 0.0) -> None:
        self.time = time

    def __call__(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time += seconds


@pytest.mark.parametrize("ahead", [0.0, 1e9, -1e9])
def test_a_lease_expires_by_the_observers_own_clock(ahead, tmp_path):
    """Catches times written by one machine and read by another, whose clock may be years away."""
    owner, clock = Leases(tmp_path, 60, Hand(ahead)), Hand()
    observer = Leases(tmp_path, 60, clock)
    held = owner.take("a")
    for beat in range(5):
        held.write_text(f"host 1 {beat}")
        os.utime(held, (0, 0))
        assert observer.take("a") is None
        clock.time += 50
        assert observer.take("a") is None
    clock.time += 61
    assert observer.take("a") == tmp_path / "a.1"


def test_of_many_that_see_a_lease_expire_one_takes_it(tmp_path):
    """Catches a takeover that removes the lease of another that was faster."""
    Leases(tmp_path, 60).take("a")
    clock = Hand()
    workers = [Leases(tmp_path, 60, clock) for _ in range(8)]
    assert [worker.take("a") for worker in workers] == [None] * 8
    clock.time += 61
    taken: list[Path | None] = []
    threads = [Thread(target=lambda worker=worker: taken.append(worker.take("a"))) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path for path in taken if path] == [tmp_path / "a.1"]


def test_a_piece_that_failed_is_free_at_once_and_a_finished_one_never(tmp_path):
    leases = Leases(tmp_path, 60, Hand())
    lease = leases.take("a")
    with pytest.raises(KeyError), leases.hold(lease):
        raise KeyError
    assert lease.read_text() == FREE
    again = leases.take("a")
    with leases.hold(again):
        pass
    assert again.read_text() == DONE
    assert leases.is_done("a")
    assert Leases(tmp_path, 60).take("a") is None


def test_a_held_lease_changes_until_it_ends(tmp_path):
    """Catches a worker whose long pieces are taken for those of a dead one."""
    leases = Leases(tmp_path, 0.05 * BEATS)
    path = leases.take("a")
    with leases.hold(path):
        seen, end = {path.read_text()}, monotonic() + 10
        while len(seen) < 4 and monotonic() < end:
            seen.add(path.read_text())
    assert len(seen) >= 4


def test_the_rest_of_a_dead_worker_is_made_by_the_one_that_is_left(tmp_path):
    clock, made = Hand(), []
    Leases(tmp_path, 60, Hand(5.0)).take("b")  # a worker that died
    pieces = [Piece(name, lambda name=name: name == "c", lambda begun, name=name: made.append(name)) for name in "abcd"]
    finish(pieces, Leases(tmp_path, 60, clock), clock.wait)
    assert made == ["a", "d", "b"]
    finish(pieces, Leases(tmp_path, 60, clock), clock.wait)
    assert made == ["a", "d", "b"]


def test_a_lease_whose_end_cannot_be_written_does_not_end_the_worker(tmp_path):
    """Catches a worker that a network file system's error kills after its piece is made."""
    leases = Leases(tmp_path / "leases", 60, Hand())
    with leases.hold(leases.take("a")):
        rmtree(tmp_path / "leases")


def test_a_lease_that_cannot_be_read_is_held_until_it_expires(tmp_path):
    clock = Hand()
    leases = Leases(tmp_path, 60, clock)
    (tmp_path / "a.0").mkdir()
    assert not leases.is_done("a")
    assert leases.take("a") is None
    clock.time += 61
    assert leases.take("a") == tmp_path / "a.1"
