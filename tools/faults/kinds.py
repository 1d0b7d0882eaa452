"""What is done to a job at a moment: signals to its processes, damage to its files, a folder without room or without
permission, a second process on the same cache, times in the future."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from lantern.evaluation.records import RECORDS
from tools.faults.jobs import POLL_S, Inputs, Running, children, extract, send
from tools.faults.work import table_files

DISK_BYTES = 64 * 2**20  # of the small disk
FULL_FOR_S = 20.0  # then whoever has not noticed is ended
CHECKPOINT = "latest.ckpt"
PAUSED_S = 8.0  # at most
YEARS_AHEAD_S = 400 * 24 * 3600.0
EVERY = ("train", "ranks", "sweep", "shards", "extraction")


class Scene(NamedTuple):
    """A job that is under way, and where."""

    running: Running
    folder: Path
    inputs: Inputs
    dice: Random


class Kind(NamedTuple):
    """A fault: `strike` happens at the moment, `damage` once the processes have ended."""

    jobs: Sequence[str]
    strike: Callable[[Scene], None]
    damage: Callable[[Scene], None] | None = None
    needs_mounts: bool = False
    is_on_small_disk: bool = False
    is_from_start: bool = False  # `strike` waits for its moment
    is_survived: bool = False  # the job goes on to its end


def kill_one(scene: Scene) -> None:
    """kill -9 of one command: torchrun, one of two shards, or the only one."""
    send(signal.SIGKILL, _choose(scene, scene.running.alive))


def kill_rank(scene: Scene) -> None:
    """kill -9 of a process that torchrun has started."""
    send(signal.SIGKILL, _choose_child(scene))


def kill_all(scene: Scene) -> None:
    """kill -9 of all, as when the machine loses power."""
    scene.running.kill()


def kill_saved(scene: Scene) -> None:
    """kill -9 of all, some time after the first checkpoint; of none if the job ends before."""
    while not any(CHECKPOINT in names for _, _, names in os.walk(scene.folder)):  # rglob fails at what goes meanwhile
        if scene.running.wait(POLL_S):
            return
    if not scene.running.wait(scene.dice.uniform(0, 0.5)):
        scene.running.kill()


def _choose(scene: Scene, processes: Sequence[int]) -> list[int]:
    """One of the processes; none of none."""
    return [scene.dice.choice(processes)] if processes else []


def _choose_child(scene: Scene) -> list[int]:
    """A child of the commands, as soon as there is one; none if the job ends before."""
    while not (found := [child for process in scene.running.alive for child in children(process)]):
        if scene.running.wait(POLL_S):
            return []
    return _choose(scene, found)


def terminate(scene: Scene) -> None:
    """SIGTERM to one command."""
    send(signal.SIGTERM, _choose(scene, scene.running.alive))


def interrupt_twice(scene: Scene) -> None:
    """Ctrl-C, and again up to a second later."""
    send(signal.SIGINT, scene.running.alive)
    if not scene.running.wait(scene.dice.uniform(0.02, 1.0)):
        send(signal.SIGINT, scene.running.alive)


def pause(scene: Scene) -> None:
    """SIGSTOP to one command, and SIGCONT later."""
    chosen = _choose(scene, scene.running.alive)
    send(signal.SIGSTOP, chosen)
    scene.running.wait(scene.dice.uniform(0.5, PAUSED_S))
    send(signal.SIGCONT, chosen)


def fill_disk(scene: Scene) -> None:
    """Leaves no byte on the job's disk until its processes have ended."""
    filler = scene.folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(2**16)):
            pass
    _end_after_a_while(scene)
    filler.unlink()


def forbid_writing(scene: Scene) -> None:
    """A read-only mount over the folder until its processes have ended; root ignores modes. It is made read-only before
    it is put there, because a mount through which a file is being written cannot be made read-only."""
    with TemporaryDirectory() as aside:
        _mount("--bind", scene.folder, aside)
        try:
            _mount("-o", "remount,ro,bind", aside)
            _mount("--bind", aside, scene.folder)
        finally:
            _unmount(aside)
    try:
        _end_after_a_while(scene)
    finally:
        _unmount(scene.folder)


def _end_after_a_while(scene: Scene) -> None:
    if not scene.running.wait(FULL_FOR_S):
        send(signal.SIGTERM, scene.running.alive)
        scene.running.wait(FULL_FOR_S)


def second_process(scene: Scene) -> None:
    """Another process that fills the same cache."""
    scene.running.start(extract(scene.inputs, scene.folder, "second"))


def tear_record(scene: Scene) -> None:
    """Cuts the last line of a record short."""
    if paths := [path for path in sorted(scene.folder.rglob(RECORDS)) if path.stat().st_size]:
        path = scene.dice.choice(paths)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines[:-1], lines[-1][: scene.dice.randrange(1, len(lines[-1]) - 1)]]))


def flip_bytes(scene: Scene) -> None:
    """Flips a few bytes of a table."""
    if paths := [path for path in table_files(scene.folder) if path.stat().st_size]:
        path = scene.dice.choice(sorted(paths))
        content = bytearray(path.read_bytes())
        for _ in range(8):
            content[scene.dice.randrange(len(content))] ^= 1 << scene.dice.randrange(8)
        path.write_bytes(content)


def set_times_ahead(scene: Scene) -> None:
    """Gives all files a time of the next year, which is what a clock that is set back leaves."""
    ahead = time.time() + YEARS_AHEAD_S
    for path in scene.folder.rglob("*"):
        os.utime(path, (ahead, ahead), follow_symlinks=False)


KINDS: dict[str, Kind] = {  # the first ones, one of a sort each, are those of the tests
    "record line cut short": Kind(("sweep", "shards"), kill_all, tear_record),
    "kill -9 behind a checkpoint": Kind(("train", "ranks"), kill_saved, is_from_start=True),
    "cache shard with flipped bytes": Kind(("train", "extraction"), kill_all, flip_bytes),
    "disk full": Kind(EVERY, fill_disk, needs_mounts=True, is_on_small_disk=True),
    "kill -9 of a rank": Kind(("ranks",), kill_rank),
    "SIGSTOP, then SIGCONT": Kind(EVERY, pause, is_survived=True),
    "kill -9 of the parent": Kind(EVERY, kill_one),
    "SIGTERM": Kind(EVERY, terminate),
    "Ctrl-C twice": Kind(EVERY, interrupt_twice),
    "folder made read-only": Kind(EVERY, forbid_writing, needs_mounts=True),
    "two processes filling one cache": Kind(("extraction", "train"), second_process, is_survived=True),
    "clock set back": Kind(EVERY, kill_all, set_times_ahead),
}


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)


def _unmount(folder: str | Path) -> None:
    subprocess.run(["umount", "--lazy", folder], check=True)


def can_mount() -> bool:
    """Whether this process may mount file systems."""
    with TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder)):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of DISK_BYTES in memory, mounted on a folder."""
    _mount("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", folder)
    try:
        yield
    finally:
        _unmount(folder)
