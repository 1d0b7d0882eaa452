"""The commands that are disturbed, each at toy size, and the processes they run in: training in one process and in two,
a sweep, shards of one evaluation with the run that measures them, and the extraction of tokens."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lantern.evaluation.sides import BATCHES
from lantern.runtime.home import CHECKOUT
from tools.miniature import PIXELS_PER_TOKEN, write_captioned_scenes, write_tiny_weights

SIDE = 4  # tokens of a row of an image
NUM_IMAGES = 600  # captioned ones: two shards of their index, three of tokens
STEPS, SAVE_EVERY = 24, 3
SHARDS = 2
GROUP_SIZE = BATCHES * 1  # batch_size
POLL_S = 0.02
MARK = "LANTERN_FAULTS"  # environment variable of all processes of a job: the job's folder
Command = Sequence[str]  # arguments of Python
Stage = Sequence[Command]  # commands run side by side; stages run one after another


class Inputs:
    """What all jobs read: weights/ and images/ in a folder."""

    def __init__(self, folder: Path) -> None:
        self.weights, self.images = folder / "weights", folder / "images"
        if not self.images.is_dir():
            write_tiny_weights(self.weights, SIDE)
            write_captioned_scenes(self.images, NUM_IMAGES, SIDE)

    def training(self, folder: Path, run: str = "run") -> tuple[str, ...]:
        """Settings of a training in folder/run."""
        return (
            "data=imagefolder", f"data.folder={self.images}", f"data.size={PIXELS_PER_TOKEN * SIDE}",
            f"paths.weights={self.weights}", f"paths.cache_dir={folder}/cache", f"hydra.run.dir={folder}/{run}",
            "trainer.accelerator=cpu", "trainer.precision=64-true", "dtype=float64", "trainer.max_time=null",
            f"trainer.max_steps={STEPS}", "trainer.val_check_interval=8", "trainer.log_every_n_steps=1",
            "batches.splits.validation.num_images=2", "batches.validation_batch_size=2", "batches.batch_size=4",
            "callbacks.latest.train_time_interval=null", f"+callbacks.latest.every_n_train_steps={SAVE_EVERY}",
            "+logger.csv.flush_logs_every_n_steps=1", "logger.wandb=null",
        )  # fmt: skip

    def evaluation(self, folder: Path) -> tuple[str, ...]:
        """Settings of an evaluation, its folder left out."""
        return (
            f"paths.weights={self.weights}", f"paths.cache_dir={folder}/cache", "dtype=float64", "device=cpu",
            "tracking.mode=disabled", "prompts=demo", "speed.num_prompts=2", "speed.max_retimed=0",
            "quality.num_images=16", "batch_size=1", "output_tv.num_images=1", "output_tv.num_positions=2",
            "metrics.fidelity.num_references=16", "metrics.fidelity.resamples=10",
        )  # fmt: skip


def train(inputs: Inputs, folder: Path) -> list[Stage]:
    """One process."""
    return [[("train.py", *inputs.training(folder))]]


def ranks(inputs: Inputs, folder: Path) -> list[Stage]:
    """Two processes under torchrun."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    return [[(*launcher, "train.py", *inputs.training(folder))]]


def sweep(inputs: Inputs, folder: Path) -> list[Stage]:
    """Two settings, one after the other."""
    axis = ("-m", "acceptance=exact,lantern_pp", f"hydra.sweep.dir={folder}/run")
    return [[("evaluate.py", *axis, *inputs.evaluation(folder))]]


def shards(inputs: Inputs, folder: Path) -> list[Stage]:
    """Shards side by side, then the run that measures their images."""
    settings = inputs.evaluation(folder)
    common = ("evaluate.py", "-m", f"shards={SHARDS}", f"hydra.sweep.dir={folder}/run", *settings)
    making = [(*common, f"shard={number}", f"hydra.sweep.subdir={number}") for number in range(SHARDS)]
    return [making, [("evaluate.py", f"hydra.run.dir={folder}/run", *settings)]]


def extraction(inputs: Inputs, folder: Path) -> list[Stage]:
    """All tables that a training reads."""
    return [[extract(inputs, folder, "run")]]


def extract(inputs: Inputs, folder: Path, run: str) -> Command:
    """Fills the cache of a job, itself in folder/run."""
    return ("-m", "lantern.training.prepare", *inputs.training(folder, run))


JOBS: Mapping[str, Callable[[Inputs, Path], list[Stage]]] = {
    "train": train, "ranks": ranks, "sweep": sweep, "shards": shards, "extraction": extraction,
}  # fmt: skip


def log_of(folder: Path) -> Path:
    """The output of all processes in a job's folder."""
    return folder.with_suffix(".log")


class Running:
    """The stages of a job, each begun where the one before has ended well."""

    def __init__(self, stages: Sequence[Stage], folder: Path) -> None:
        self.folder, self._left = folder, list(stages)
        self._processes: list[subprocess.Popen] = []
        self._start_next()

    def _start_next(self) -> None:
        for command in self._left.pop(0):
            self.start(command)

    def start(self, command: Command) -> None:
        """One more process in this stage."""
        environment = os.environ | {MARK: str(self.folder), "PYTHONPATH": str(CHECKOUT)}
        with log_of(self.folder).open("a") as log:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)

    @property
    def alive(self) -> list[int]:
        """Process ids of the running commands."""
        return [process.pid for process in self._processes if process.poll() is None]

    @property
    def statuses(self) -> list[int]:
        """Of all commands that have ended; negative: the signal that ended them."""
        return [status for process in self._processes if (status := process.poll()) is not None]

    def wait(self, seconds: float) -> bool:
        """Waits for the end of all stages, so many seconds at most; whether they ended."""
        deadline = time.monotonic() + seconds
        while True:
            if not self.alive:
                if any(self.statuses) or not self._left:
                    return True
                self._start_next()
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)

    def kill(self) -> None:
        """Kills the commands and all that they have started; no other stage begins."""
        self._left.clear()
        send(signal.SIGKILL, self.alive)
        send(signal.SIGKILL, marked_processes(self.folder))
        for process in self._processes:
            process.wait()


def send(number: int, processes: Iterable[int]) -> None:
    """Sends a signal to those of the processes that still exist."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def marked_processes(folder: Path) -> list[int]:
    """All processes of a job, those that its commands have started included."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if f"{MARK}={folder}" in _words(path / "environ")]


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in " ".join(_words(Path(f"/proc/{process}/task/{process}/children"))).split()]


def _words(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode(errors="replace").split("\0")
    except OSError:  # the process has ended
        return []
