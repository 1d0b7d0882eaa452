"""The commands that the study of faults disturbs, each at toy size: training in one process and in two, a sweep, shards
of one evaluation with the run that measures them, and the extraction of tokens."""

import json
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from lantern.evaluation.contender import BATCHES
from lantern.studies.forked import Command, Launch, Stage, run, run_together
from lantern.studies.miniature import PIXELS_PER_TOKEN, write_captioned_scenes, write_tiny_weights

SIDE = 4  # tokens of a row of an image
NUM_IMAGES = 600  # captioned ones: two shards of their index, three of tokens
STEPS, SAVE_EVERY = 24, 3
SHARDS = RANKS = 2
GROUP_SIZE = BATCHES * 1  # batch_size
Job = Callable[["Place", Path], list[Stage]]  # inputs, folder -> what is run there, stage by stage


class Place:
    """A folder with what all jobs read: weights/ and images/."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.weights, self.images = folder / "weights", folder / "images"

    def prepare(self) -> None:
        """Writes what is not there yet."""
        ready = self.folder / "inputs.json"
        if ready.is_file():
            return
        write_tiny_weights(self.weights, SIDE)
        write_captioned_scenes(self.images, NUM_IMAGES, SIDE)
        ready.write_text(json.dumps({"images": NUM_IMAGES}) + "\n")


def _training(place: Place, folder: Path) -> tuple[str, ...]:
    return (
        "data=imagefolder", f"data.folder={place.images}", f"data.size={PIXELS_PER_TOKEN * SIDE}",
        f"paths.weights={place.weights}", f"paths.cache_dir={folder}/cache", f"hydra.run.dir={folder}/run",
        "trainer.accelerator=cpu", "trainer.precision=64-true", "dtype=float64", "trainer.max_time=null",
        f"trainer.max_steps={STEPS}", "trainer.val_check_interval=8", "trainer.log_every_n_steps=1",
        "batches.splits.validation.num_images=2", "batches.validation_batch_size=2", "batches.batch_size=4",
        "callbacks.latest.train_time_interval=null", f"+callbacks.latest.every_n_train_steps={SAVE_EVERY}",
        "+logger.csv.flush_logs_every_n_steps=1", "logger.wandb=null",
    )  # fmt: skip


def _evaluating(place: Place, folder: Path) -> tuple[str, ...]:
    return (
        f"paths.weights={place.weights}", f"paths.cache_dir={folder}/cache", "dtype=float64", "device=cpu",
        "tracking.mode=disabled", "prompts=demo", "speed.num_prompts=2", "speed.max_retimed=0",
        "quality.num_images=16", "batch_size=1", "output_tv.num_images=1", "output_tv.num_positions=2",
        "metrics.fidelity.num_references=16", "metrics.fidelity.resamples=10",
    )  # fmt: skip


def log_of(folder: Path) -> Path:
    """The output of all processes in a job's folder."""
    return folder.with_suffix(".log")


def _started(folder: Path, script: str, *settings: str) -> Launch:
    return partial(run, Command(script, settings), log_of(folder))


def train(place: Place, folder: Path) -> list[Stage]:
    """One process."""
    return [[_started(folder, "train.py", *_training(place, folder))]]


def ranks(place: Place, folder: Path) -> list[Stage]:
    """Two processes, as torchrun starts them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "faults", "WORLD_SIZE": RANKS}
    common |= {"LOCAL_WORLD_SIZE": RANKS, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1}
    variables = [common | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(RANKS)]
    given = [tuple((name, str(value)) for name, value in one.items()) for one in variables]
    commands = [Command("train.py", _training(place, folder), one) for one in given]
    return [[partial(run_together, commands, log_of(folder))]]


def sweep(place: Place, folder: Path) -> list[Stage]:
    """Two settings, one after the other."""
    settings = ("-m", "acceptance=exact,lantern_pp", f"hydra.sweep.dir={folder}/run", *_evaluating(place, folder))
    return [[_started(folder, "evaluate.py", *settings)]]


def shards(place: Place, folder: Path) -> list[Stage]:
    """Shards side by side, then the run that measures their images."""
    given = _evaluating(place, folder)
    own = ("-m", f"shards={SHARDS}", "lease_s=3", f"hydra.sweep.dir={folder}/run", *given)
    making = [_started(folder, "evaluate.py", *own, f"shard={n}", f"hydra.sweep.subdir={n}") for n in range(SHARDS)]
    return [making, [_started(folder, "evaluate.py", f"hydra.run.dir={folder}/run", *given)]]


def extraction(place: Place, folder: Path) -> list[Stage]:
    """All tables that a training reads."""
    return [[extracting(place, folder, "run")]]


def extracting(place: Place, folder: Path, name: str) -> Launch:
    """One process that fills the cache of a job, itself in folder/name."""
    return _started(folder, "lantern.training.prepare", *_training(place, folder), f"hydra.run.dir={folder}/{name}")


JOBS: Mapping[str, Job] = {
    "train": train, "ranks": ranks, "sweep": sweep, "shards": shards, "extraction": extraction,
}  # fmt: skip


def shards_of(job: str) -> int:
    """Among how many workers a job's images are shared."""
    return SHARDS if job == "shards" else 1
