"""python train.py on a user's images, in miniature: from files to a drafter, over one process and two."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from support.commands import printed
from support.paths import ROOT
from support.tiny_weights import write_tiny_weights

from lantern.models.checkpoints import load_weights, read_weights
from lantern.scenes.rendering import render
from tools.miniature import write_captioned_scenes

GOLDEN = ROOT / "tests" / "golden"


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


def train(workplace: Path, name: str, *arguments: str) -> tuple[str, Path]:
    """train.py's output, and the run's folder."""
    run = workplace / "runs" / name
    command = [
        sys.executable, str(ROOT / "train.py"), "data=imagefolder", f"data.folder={workplace}/images",
        "data.validation_share=0.2", f"paths.weights={workplace}/weights", f"paths.cache_dir={workplace}/cache",
        f"hydra.run.dir={run}", "trainer.accelerator=cpu", "trainer.precision=64-true", "dtype=float64",
        "trainer.max_time=null", "trainer.max_steps=3", "trainer.val_check_interval=3", "callbacks.best=null",
        "batches.splits.validation.num_images=2", "batches.validation_batch_size=2", *arguments,
    ]  # fmt: skip
    environment = os.environ | {"WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=workplace, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr, run


@pytest.mark.full
def test_a_folder_of_images_becomes_a_drafter_and_two_processes_make_the_same_one(workplace):
    """Eight images a step in one process, four in each of two: the same images, noise and start, so the same weights.
    Catches noise keyed by process, an initialisation from one process's images, and other batches per process."""
    said, alone = train(workplace, "alone", "features=on_the_fly", "+captions=disk", "batches.batch_size=8")
    assert "skipped 3 of 19 images" in said
    assert printed(said)[-1] == f"drafter.checkpoint={alone}/drafter"
    evaluate(workplace, printed(said))
    assert list((workplace / "cache").glob("captions-train-*/00000-*/shard.json"))
    _, together = train(
        workplace, "together", "features=on_the_fly", "batches.batch_size=8", "trainer.devices=2",
    )  # fmt: skip
    one, two = (load_weights(run / "drafter")[0] for run in (alone, together))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-6)


@pytest.mark.full
def test_a_class_models_drafter_is_measured_by_the_printed_command(workplace):
    """Catches a printed command without the model's files or sizes, or with captions for a class model."""
    codes = read_weights(GOLDEN / "llamagen_vq_tiny.pt")
    codes["quantize.embedding.weight"] = codes["quantize.embedding.weight"].repeat(3, 1)[:160]
    (workplace / "released").mkdir()
    torch.save(codes, workplace / "released" / "vq.pt")
    (workplace / "classes").mkdir()
    for seed in range(16):
        Image.fromarray(render(seed)[0]).save(workplace / "classes" / f"{seed}.png")
        (workplace / "classes" / f"{seed}.txt").write_text(str(seed % 7))
    said, _ = train(
        workplace, "classes", f"data.folder={workplace}/classes", "model=llamagen_c2i_b",
        f"model.checkpoint={GOLDEN}", "model.file=llamagen_c2i_tiny.pt",
        "model.dim=96", "model.num_layers=3", "model.num_heads=3", "model.num_classes=7", "+model.multiple_of=64",
        "model.image_size=8", f"model.tokenizer.checkpoint={workplace}/released", "model.tokenizer.file=vq.pt",
        "model.tokenizer.multipliers=[1,2]", "+model.tokenizer.channels=32", "+model.tokenizer.z_channels=32",
        "+model.tokenizer.codebook_size=160", "batches.batch_size=4", "trainer.max_steps=1",
        "trainer.val_check_interval=1",
    )  # fmt: skip
    assert "prompts=classes" in printed(said)
    evaluate(workplace, printed(said))


def evaluate(workplace: Path, overrides: list[str]) -> None:
    """Runs the printed command on few images."""
    few = ["speed.num_prompts=1", "speed.max_retimed=0", "output_tv.num_positions=0", "quality.num_images=0"]
    command = [sys.executable, str(ROOT / "evaluate.py"), *overrides, *few]
    environment = os.environ | {"WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=workplace, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.full
def test_a_drafter_is_trained_further_on_the_targets_own_images(workplace):
    said, run = train(
        workplace, "further", "task=drafter_self", "samples.num_images=8", "batches.batch_size=4",
        f"task.start_from={workplace}/weights/drafter", "task.lr=0", "task.muon_lr=0",
    )  # fmt: skip
    assert printed(said)[-1] == f"drafter.checkpoint={run}/drafter"
    start, after = (load_weights(folder)[0] for folder in (workplace / "weights" / "drafter", run / "drafter"))
    assert all(torch.equal(start[name], value.float()) for name, value in after.items())
    assert list((workplace / "cache").glob("samples-train-*"))
