"""python train.py on a user's images, in miniature: from files to a drafter, over processes of which some are killed;
and python -m lantern.training.prepare, which makes the tables that it reads."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from datasets import load_from_disk
from PIL import Image
from support.commands import printed, run_script, trainings_here
from support.paths import ROOT
from support.tiny_weights import write_tiny_weights

from lantern.data.imagefolder import SYNSETS
from lantern.models.checkpoints import load_weights, read_weights
from lantern.training.run.processes import OWN_STORE
from tools.miniature import write_captioned_scenes

pytestmark = pytest.mark.full
GOLDEN = ROOT / "tests" / "golden"
ENVIRONMENT = os.environ | {"WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
TRAIN = (str(ROOT / "train.py"),)
STEPS, SAVE_EVERY = 30, 3  # of trainings that are killed
PATIENCE = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3"  # of the rendezvous, seconds
LONG = (
    f"trainer.max_steps={STEPS}", "trainer.val_check_interval=1000", "features=on_the_fly", "batches.batch_size=4",
    "callbacks.latest.train_time_interval=null", f"+callbacks.latest.every_n_train_steps={SAVE_EVERY}",
    "trainer.log_every_n_steps=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """weights/ in miniature and images/ with sixteen good files and three bad ones."""
    folder = tmp_path_factory.mktemp("own")
    write_tiny_weights(folder / "weights")
    write_captioned_scenes(folder / "images", 16)
    for name, content in (("cut.jpg", b"\xff\xd8\xff\xe0cut"), ("empty.png", b""), ("text.gif", b"none")):
        (folder / "images" / name).write_bytes(content)
        (folder / "images" / name).with_suffix(".txt").write_text("wood")
    return folder


def command(workplace: Path, run: Path, *arguments: str, program: tuple[str, ...] = TRAIN) -> list[str]:
    return [
        sys.executable, *program, "data=imagefolder", f"data.folder={workplace}/images", "data.validation_share=0.2",
        f"paths.weights={workplace}/weights", f"paths.cache_dir={workplace}/cache", f"hydra.run.dir={run}",
        "trainer.accelerator=cpu", "trainer.precision=64-true", "dtype=float64", "trainer.max_time=null",
        "trainer.max_steps=3", "trainer.val_check_interval=3", "callbacks.best=null",
        "batches.splits.validation.num_images=2", "batches.validation_batch_size=2", *arguments,
    ]  # fmt: skip


def train(workplace: Path, name: str, *arguments: str) -> Path:
    """train.py in this process -> the run's folder."""
    run = workplace / "runs" / name
    with pytest.MonkeyPatch.context() as here, trainings_here(here):
        here.chdir(workplace)
        here.setenv("WANDB_MODE", "disabled")
        run_script(here, "train.py", *command(workplace, run, *arguments, program=())[1:])
    return run


@pytest.fixture
def said(capsys, caplog) -> Callable[[], str]:
    """What was logged and printed."""
    return lambda: caplog.text + capsys.readouterr().out


@pytest.fixture
def evaluate(workplace, monkeypatch) -> Callable[[list[str]], None]:
    """Runs the printed command on few images."""
    few = ["speed.num_prompts=1", "speed.max_retimed=0", "output_tv.num_positions=0", "quality.num_images=0"]
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    return lambda overrides: run_script(monkeypatch, "evaluate.py", *overrides, *few)


def test_an_imagenet_folder_becomes_a_drafter_of_a_class_model(workplace, evaluate, said):
    """400 images in the folders of 20 synsets, by the two commands of docs/models.md. Catches the place among the
    folders that are there in place of ImageNet's class, and a printed command without the model's files or sizes."""
    images, released = workplace / "imagenet", workplace / "thousand"
    synsets = SYNSETS.read_text().split()[::50]
    for number, synset in enumerate(synsets):
        (images / synset).mkdir(parents=True)
        for copy in range(20):
            pixels = torch.full((12, 10, 3), 10 * number + copy // 2, dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(images / synset / f"{synset}_{copy}.JPEG", quality=95)
    (images / synsets[3] / f"{synsets[3]}_0.JPEG").write_bytes(b"\xff\xd8 cut")
    released.mkdir()
    weights, codes = read_weights(GOLDEN / "llamagen_c2i_tiny.pt"), read_weights(GOLDEN / "llamagen_vq_tiny.pt")
    table = weights["cls_embedding.embedding_table.weight"]
    weights["cls_embedding.embedding_table.weight"] = table[torch.arange(1001) % len(table)]
    codes["quantize.embedding.weight"] = codes["quantize.embedding.weight"].repeat(3, 1)[:160]
    torch.save(weights, released / "c2i.pt")
    torch.save(codes, released / "vq.pt")
    train(
        workplace, "imagenet", f"data.folder={images}", "model=llamagen_c2i_b", f"model.checkpoint={released}",
        "model.file=c2i.pt", "model.dim=96", "model.num_layers=3", "model.num_heads=3", "+model.multiple_of=64",
        "model.image_size=8", f"model.tokenizer.checkpoint={released}", "model.tokenizer.file=vq.pt",
        "model.tokenizer.multipliers=[1,2]", "+model.tokenizer.channels=32", "+model.tokenizer.z_channels=32",
        "+model.tokenizer.codebook_size=160", "batches.batch_size=16", f"paths.cache_dir={workplace}/imagenet_cache",
        "features=on_the_fly",
    )  # fmt: skip
    told = said()
    assert "skipped 1 of 400 images" in told
    tables = [load_from_disk(str(path.parent)) for path in workplace.glob("imagenet_cache/tokens-train-*/*/state.json")]
    captions = Counter(caption for table in tables for caption in table["caption"])
    assert captions.keys() == {str(50 * number) for number in range(20)}
    assert min(captions.values()) > 8
    assert "prompts=classes" in printed(told)
    evaluate(printed(told))


def test_a_drafter_is_trained_further_on_the_targets_own_images(workplace, said):
    run = train(
        workplace, "further", "task=drafter_self", "samples.num_images=8", "batches.batch_size=4",
        f"task.start_from={workplace}/weights/drafter", "task.lr=0", "task.muon_lr=0", "features=on_the_fly",
    )  # fmt: skip
    told = said()
    assert "skipped 3 of 19 images" in told
    assert printed(told)[-1] == f"drafter.checkpoint={run}/drafter"
    start, after = (load_weights(folder)[0] for folder in (workplace / "weights" / "drafter", run / "drafter"))
    assert all(torch.equal(start[name], value.float()) for name, value in after.items())
    assert list((workplace / "cache").glob("samples-train-*"))


def test_a_training_finds_the_tables_that_two_processes_have_prepared_for_it(workplace):
    """Catches tables under keys that depend on the command, and a split that is left to the training."""
    cache = workplace / "prepared"
    given = [f"paths.cache_dir={cache}", "features=on_the_fly", "batches.batch_size=2"]
    launched = ["+launch=submitit_local", "+worker=range(2)", f"hydra.sweep.dir={workplace}/both"]
    program = ("-m", "lantern.training.prepare", "-m")
    both = command(workplace, workplace / "none", *given, *launched, program=program)
    done = subprocess.run(both, capture_output=True, text=True, cwd=workplace, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-3000:]
    made = {path: path.stat().st_mtime_ns for path in cache.rglob("*.arrow")}
    assert {path.parts[-3].split("-")[0] for path in made} == {"list", "tokens", "samples"}
    train(workplace, "prepared", *given)
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.arrow")} == made


def started(arguments: list[str], log: Path) -> subprocess.Popen:
    environment = ENVIRONMENT | dict([OWN_STORE.split("=")])
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
    return load_weights(train(workplace, "undisturbed", *LONG) / "drafter")[0]


def assert_close(run: Path, undisturbed: dict[str, torch.Tensor]) -> None:
    torch.testing.assert_close(load_weights(run / "drafter")[0], undisturbed, rtol=0, atol=1e-6)


def saved(run: Path) -> Callable[[], bool]:
    return (run / "checkpoints" / "latest.ckpt").exists


def test_after_a_lost_process_and_a_lost_machine_the_rest_goes_on_with_the_same_batches(workplace, undisturbed):
    """Two launchers stand for two machines; a rank is killed, then the launcher that does not hold the rendezvous.
    Catches ranks that resume from different steps, and images a step that are fixed at the first start."""
    run = workplace / "runs" / "lost"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    launcher = [
        "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=lost", f"--rdzv-conf={PATIENCE},is_host=",
    ]  # fmt: skip
    logs = [workplace / "first.log", workplace / "second.log"]
    first, second = (
        started(command(workplace, run, *LONG, program=(*launcher[:-1], launcher[-1] + is_host, *TRAIN)), log)
        for is_host, log in zip(("true", "false"), logs, strict=True)
    )
    wait_for(saved(run), first, logs[0])
    os.kill(workers(second.pid)[-1], signal.SIGKILL)
    wait_for(lambda: {"metrics-1.csv", "metrics.csv"} <= set(os.listdir(run)), first, logs[0])
    for lost in (second.pid, *workers(second.pid)):
        os.kill(lost, signal.SIGKILL)
    second.wait()
    assert first.wait(timeout=400) == 0, logs[0].read_text()[-3000:]
    assert len(re.findall(r"resumed from .*latest\.ckpt", logs[0].read_text())) >= 2
    assert "num_nodes: 1" in (run / "config.yaml").read_text()
    starts = list(steps_of(run))
    assert starts[-1][-1] == STEPS - 1
    for before, again in pairwise(starts):
        assert again[0] % SAVE_EVERY == 0
        assert 0 < again[0] <= before[-1] + 1
    assert_close(run, undisturbed)
