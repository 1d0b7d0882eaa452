"""torchrun: killed processes are started again and go on from the last checkpoint, also with fewer machines."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.paths import ROOT
from support.tiny_weights import write_tiny_weights

from lantern.models.checkpoints import load_weights
from lantern.training.run.processes import OWN_STORE
from tools.miniature import write_captioned_scenes

STEPS, SAVE_EVERY = 30, 3
PATIENCE = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3"  # of the rendezvous, seconds


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """weights/ in miniature and images/."""
    folder = tmp_path_factory.mktemp("elastic")
    write_tiny_weights(folder / "weights")
    write_captioned_scenes(folder / "images", 16)
    return folder


def command(workplace: Path, run: Path, *launcher: str) -> list[str]:
    return [
        sys.executable, *launcher, str(ROOT / "train.py"), "data=imagefolder", f"data.folder={workplace}/images",
        "data.validation_share=0.2", f"paths.weights={workplace}/weights", f"paths.cache_dir={workplace}/cache",
        f"hydra.run.dir={run}", "trainer.accelerator=cpu", "trainer.precision=64-true", "dtype=float64",
        "trainer.max_time=null", f"trainer.max_steps={STEPS}", "trainer.val_check_interval=1000", "callbacks.best=null",
        "batches.splits.validation.num_images=2", "batches.validation_batch_size=2", "features=on_the_fly",
        "batches.batch_size=4", "callbacks.latest.train_time_interval=null",
        f"+callbacks.latest.every_n_train_steps={SAVE_EVERY}", "trainer.log_every_n_steps=1",
    ]  # fmt: skip


def started(arguments: list[str], log: Path) -> subprocess.Popen:
    environment = os.environ | {"WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"} | dict([OWN_STORE.split("=")])
    with log.open("w") as file:
        return subprocess.Popen(arguments, stdout=file, stderr=file, env=environment, start_new_session=True)


def workers(launcher: int) -> list[int]:
    """Processes of train.py that the launcher has started."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(launcher)], capture_output=True, text=True).stdout
    return sorted(map(int, found.split()))


def wait_for(happened: Callable[[], object], process: subprocess.Popen, log: Path, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)


def steps_of(run: Path) -> Iterator[list[int]]:
    """The logged steps of each start, in the order of the starts."""
    numbered = sorted(run.glob("metrics-*.csv"), key=lambda path: int(path.stem.split("-")[1]))
    for path in [*numbered, run / "metrics.csv"]:
        lines = path.read_text().splitlines()
        column = lines[0].split(",").index("step")
        yield sorted({int(line.split(",")[column]) for line in lines[1:]})


@pytest.fixture(scope="module")
def undisturbed(workplace) -> dict[str, torch.Tensor]:
    """The drafter of one process that nothing happened to."""
    run = workplace / "runs" / "undisturbed"
    done = subprocess.run(command(workplace, run), capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr[-3000:]
    return load_weights(run / "drafter")[0]


def assert_close(run: Path, undisturbed: dict[str, torch.Tensor]) -> None:
    found = load_weights(run / "drafter")[0]
    for name, value in undisturbed.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6)


def saved(run: Path) -> Callable[[], bool]:
    return (run / "checkpoints" / "latest.previous.ckpt").exists


@pytest.mark.full
def test_a_killed_rank_is_started_again_and_goes_on_from_the_last_checkpoint(workplace, undisturbed):
    """Catches a restart from the beginning, and ranks that resume from different steps."""
    run, log = workplace / "runs" / "killed", workplace / "killed.log"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3"]
    process = started(command(workplace, run, *launcher), log)
    wait_for(saved(run), process, log)
    os.kill(workers(process.pid)[-1], signal.SIGKILL)
    assert process.wait(timeout=300) == 0, log.read_text()[-3000:]
    first, again = steps_of(run)
    assert again[0] % SAVE_EVERY == 0
    assert 0 < again[0] <= first[-1] + 1
    assert again[-1] == STEPS - 1
    assert f"resumed from {run}/checkpoints/latest.ckpt" in log.read_text()
    assert_close(run, undisturbed)


@pytest.mark.full
def test_a_lost_machine_leaves_the_other_to_go_on_with_the_same_batches(workplace, undisturbed):
    """Two launchers stand for two machines; the one that does not hold the rendezvous is killed with its rank.
    Catches a number of processes, or images a step, that is fixed at the first start."""
    run = workplace / "runs" / "lost"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    launcher = [
        "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=lost", f"--rdzv-conf={PATIENCE},is_host=",
    ]  # fmt: skip
    logs = [workplace / "first.log", workplace / "second.log"]
    first, second = (
        started(command(workplace, run, *launcher[:-1], launcher[-1] + is_host), log)
        for is_host, log in zip(("true", "false"), logs, strict=True)
    )
    wait_for(saved(run), first, logs[0])
    for lost in (second.pid, *workers(second.pid)):
        os.kill(lost, signal.SIGKILL)
    second.wait()
    assert first.wait(timeout=400) == 0, logs[0].read_text()[-3000:]
    assert re.search(r"resumed from .*latest\.ckpt", logs[0].read_text())
    config = (run / "config.yaml").read_text()
    assert "num_nodes: 1" in config
    assert list(steps_of(run))[-1][-1] == STEPS - 1
    assert_close(run, undisturbed)
