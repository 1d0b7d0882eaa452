"""Evaluations and trainings as jobs of a real Slurm, signalled, cancelled and put back into the queue."""

import csv
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.commands import run_script, trainings_here
from support.paths import ROOT
from support.tiny_weights import write_tiny_weights

from lantern.evaluation.rows import read_rows
from lantern.evaluation.sides import BATCHES
from lantern.models.checkpoints import load_weights, weights_hash
from tools.miniature import write_captioned_scenes

pytestmark = pytest.mark.full
LIMIT = 600  # seconds that a job may take here, start included
LASTING = ("setting", "part", "method", "prompt", "copy", "tokens", "steps")
FIGURES = ("tokens_per_step", "frechet", "frechet_diff", "frechet_diff_high", "kernel", "all_accuracy", "output_tv")
SMALL = (
    "output_tv.num_positions=4", "speed.num_prompts=2", "speed.max_retimed=0", "quality.num_images=32",
    "metrics.fidelity.num_references=16", "dtype=float32", "batch_size=1", "tracking.mode=disabled",
)  # fmt: skip
STEPS = 400
CRITIC = (
    "task=critic", "task.critic.width=4", "batches.batch_size=2", f"trainer.max_steps={STEPS}",
    f"trainer.val_check_interval={STEPS}", "trainer.log_every_n_steps=1", "+logger.csv.flush_logs_every_n_steps=1",
    "logger.wandb=null", "data.num_train=400", "data.num_validation=8",
)  # fmt: skip


def clusters_lines() -> list[str]:
    return [line.strip() for line in (ROOT / "docs" / "clusters.md").read_text().splitlines()]


def documented(start: str) -> list[str]:
    """The first command of docs/clusters.md that begins so, to be run by this Python."""
    command = next(line for line in clusters_lines() if line.startswith(start))
    return [sys.executable, *shlex.split(command, comments=True)[1:]]


processes: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """Ends what a failed test has started: a command that waits for its jobs."""
    yield
    for process in processes:
        process.kill()


def started(command: list[str], environment: dict[str, str]) -> subprocess.Popen:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    processes.append(subprocess.Popen(command, cwd=ROOT, env=environment, **pipes))
    return processes[-1]


def finished(process: subprocess.Popen) -> str:
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, said
    return said


def slurm(cluster: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=cluster, check=True, capture_output=True, text=True).stdout


def running(cluster: dict[str, str]) -> list[str]:
    return slurm(cluster, "squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i").split()


def until(happened: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    """Returns once happened() is true. Fails if the process, where one is given, ends before."""
    end = time.monotonic() + LIMIT
    while not happened():
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.1)


def images_in(folder: Path) -> list[tuple]:
    """The images on all records below a folder."""
    lines = [line for file in folder.rglob("prompts.jsonl") for line in read_rows(file)]
    return sorted(tuple(line[key] for key in LASTING) for line in lines)


def test_the_documented_array_requeued_cancelled_and_started_again_gives_the_rows_of_one_process(cluster, tmp_path):
    """Catches images made twice or never, and settings of
    conf/launch/slurm.yaml that Slurm refuses."""
    settings = [f"paths.weights={write_tiny_weights(tmp_path / 'weights')}", f"paths.runs={tmp_path}", *SMALL]
    folder = tmp_path / "array"
    of_four = documented("python evaluate.py -m +launch=slurm")
    of_two = [word.replace("=4", "=2").replace("(4)", "(2)") for word in of_four]
    command = [*of_two, *settings, f"hydra.sweep.dir={folder}"]
    first = started(command, cluster)
    until(lambda: len(running(cluster)) == 2 and images_in(folder), first)
    cancelled, requeued = running(cluster)
    slurm(cluster, "scancel", cancelled)
    slurm(cluster, "scontrol", "requeue", requeued)
    until(lambda: "Restarts=1" in slurm(cluster, "scontrol", "show", "job", requeued), first)
    until(lambda: not slurm(cluster, "squeue", "--noheader"))
    first.kill()  # it waits for the cancelled job
    before = images_in(folder)
    finished(started(command, cluster))
    made = images_in(folder)
    assert set(before) <= set(made)
    assert len(made) <= len(set(made)) + 3 * BATCHES  # a part of each of the jobs may be there twice

    merged = [*documented("python evaluate.py hydra.run.dir=runs/big"), *settings, f"hydra.run.dir={folder}"]
    alone = [*merged[:-1], f"hydra.run.dir={tmp_path}/one"]
    finished(started(merged, cluster))
    finished(started(alone, cluster))
    assert set(images_in(folder)) == set(images_in(tmp_path / "one"))
    rows = [read_rows(path / "results.jsonl")[-1] for path in (folder, tmp_path / "one")]
    assert [rows[0][key] for key in FIGURES] == [rows[1][key] for key in FIGURES]


def steps_in(folder: Path) -> list[int]:
    """The logged steps, of the first start to the last."""
    files = [*sorted(folder.glob("metrics-*.csv")), folder / "metrics.csv"]
    rows = [row for file in files if file.is_file() for row in csv.DictReader(file.read_text().splitlines())]
    return [int(row["step"]) for row in rows if row.get("train/loss")]


def test_a_training_signalled_before_its_limit_and_requeued_repeats_no_step_and_ends_in_the_same_weights(
    cluster, tmp_path
):
    """Catches a signal that ends the job without a checkpoint, or saves one in the middle of a step."""
    alone = started([sys.executable, "train.py", *CRITIC, f"hydra.run.dir={tmp_path}/one"], cluster)
    folder = tmp_path / "job"
    process = started([*documented("python train.py -m +launch=slurm"), *CRITIC, f"hydra.sweep.dir={folder}"], cluster)
    for command in (["scancel", "--signal=USR2"], ["scontrol", "requeue"]):
        before = len(steps_in(folder / "0"))
        until(lambda seen=before: len(steps_in(folder / "0")) > seen, process)
        (job,) = running(cluster)
        slurm(cluster, *command, job)
        until(lambda last=job: last not in running(cluster), process)
    finished(process)
    steps = steps_in(folder / "0")
    assert steps == sorted(set(steps))
    assert len(steps) == STEPS - 2  # a step is saved before it is logged
    said = "".join(file.read_text() for file in (folder / ".submitit").rglob("*_log.out"))
    assert len(re.findall("resumed from", said)) == 2
    finished(alone)
    assert weights_hash(folder / "0" / "critic") == weights_hash(tmp_path / "one" / "critic")


@pytest.fixture(scope="module")
def short(tmp_path_factory) -> list[str]:
    """Settings of a short training of a drafter in miniature, in double precision."""
    folder = tmp_path_factory.mktemp("short")
    weights = write_tiny_weights(folder / "weights", side=4)
    write_captioned_scenes(folder / "images", 16, side=4)
    return [
        "data=imagefolder", f"data.folder={folder}/images", "data.size=32", "data.validation_share=0.2",
        f"paths.weights={weights}", f"paths.cache_dir={folder}/cache", "trainer.accelerator=cpu",
        "trainer.precision=64-true", "dtype=float64", "trainer.max_time=null", "trainer.max_steps=6",
        "trainer.val_check_interval=1000", "callbacks.best=null", "trainer.log_every_n_steps=1",
        "batches.splits.validation.num_images=2", "batches.validation_batch_size=2", "batches.batch_size=4",
        "logger.wandb=null",
    ]  # fmt: skip


def assert_one_training(folder: Path, alone: Path) -> None:
    """The steps of one training, and the weights of one process."""
    assert steps_in(folder) == list(range(6))
    expected = load_weights(alone / "drafter")[0]
    for name, value in load_weights(folder / "drafter")[0].items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def alone(tmp_path_factory, short) -> Path:
    """The run folder of one process."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as here, trainings_here(here):
        run_script(here, "train.py", *short, f"hydra.run.dir={folder}")
    return folder


def test_the_documented_job_of_two_tasks_is_one_training(cluster, tmp_path, short, alone):
    """Catches tasks of a launcher that train apart, each on all images."""
    command = documented("python train.py -m +launch=slurm hydra.launcher.tasks_per_node")
    finished(started([*command, *short, f"hydra.sweep.dir={tmp_path}/job"], cluster))
    assert_one_training(tmp_path / "job" / "0", alone)


def test_the_documented_sbatch_with_srun_is_one_training(cluster, tmp_path, short, alone):
    """Plain Slurm, without a launcher of ours. Catches ranks that do not find each other under srun."""
    words = shlex.split(next(line for line in clusters_lines() if line.startswith("sbatch ")))
    place = words.index("--wrap") + 1
    program = words[place].replace("python", sys.executable, 1).replace("runs/drafter", f"{tmp_path}/job")
    words[place] = shlex.join([*shlex.split(program), *short])
    job = ["sbatch", "--wait", f"--output={tmp_path}/said", *words[1:]]
    done = subprocess.run(job, cwd=ROOT, env=cluster, capture_output=True, text=True, timeout=LIMIT)
    said = (tmp_path / "said").read_text()
    assert done.returncode == 0, said
    assert "srun` command is available" not in said
    assert_one_training(tmp_path / "job", alone)
