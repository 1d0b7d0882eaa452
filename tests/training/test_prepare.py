"""python -m lantern.training.prepare: several of them make the tables that train.py with the same settings reads."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from PIL import Image
from support.paths import ROOT
from support.tiny_weights import write_tiny_weights

from lantern.scenes.rendering import render


def write_scenes(folder: Path, shards: int) -> None:
    """Shards of four captioned scenes."""
    for number in range(shards):
        with tarfile.open(folder / f"{number:03d}.tar", "w") as shard:
            for seed in range(4 * number, 4 * number + 4):
                image, scene = render(seed)
                Image.fromarray(image).save(folder / f"{seed}.png")
                (folder / f"{seed}.txt").write_text(scene.caption)
                for suffix in ("png", "txt"):
                    shard.add(folder / f"{seed}.{suffix}", f"{seed}.{suffix}")


@pytest.mark.full
def test_a_training_finds_the_tables_that_two_processes_have_prepared_for_it(tmp_path):
    """Catches tables under keys that depend on the command, and a split that is left to the training."""
    write_tiny_weights(tmp_path / "weights")
    write_scenes(tmp_path, shards=4)
    settings = [
        "data=webdataset", f"data.shards='{tmp_path}/{{000..003}}.tar'", "data.validation_share=0.2",
        f"paths.weights={tmp_path}/weights", f"paths.cache_dir={tmp_path}/cache", "features=on_the_fly",
        "batches.splits.validation.num_images=2", "dtype=float32", "device=cpu",
    ]  # fmt: skip
    environment = os.environ | {"WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

    def run(*command: str) -> None:
        whole = [sys.executable, *command, *settings]
        done = subprocess.run(whole, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    launched = ["-m", "+launch=submitit_local", "+worker=range(2)", f"hydra.sweep.dir={tmp_path}/both"]
    run("-m", "lantern.training.prepare", *launched)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.arrow")}
    assert {path.parts[-3].split("-")[0] for path in made} == {"list", "tokens", "samples"}
    few = ["trainer.max_time=null", "trainer.max_steps=1", "callbacks.best=null", "batches.batch_size=2"]
    run(str(ROOT / "train.py"), *few, f"hydra.run.dir={tmp_path}/run", "trainer.accelerator=cpu")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.arrow")} == made
