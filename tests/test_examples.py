"""Every file of examples/, carried out on miniature weights."""

import ast
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from support.commands import run_script, trainings_here
from support.documented import DOCUMENTED
from support.families import FAMILIES, LENGTH, SIDE
from support.paths import PROMPTS, ROOT
from support.tiny_weights import write_tiny_weights
from torch.nn.modules.module import register_module_forward_pre_hook
from torchvision.transforms.functional import pil_to_tensor

from lantern.evaluation.rows import read_rows
from tools.miniature import write_captioned_scenes

EXAMPLES = ROOT / "examples"
TINY_GLM_IMAGE = [f"model.prefix_len={LENGTH}", f"model.image_size={32 * SIDE}", "model.preview_side=2"]
TINY_TRAINING = [
    "trainer.accelerator=cpu", "trainer.max_steps=2", "trainer.val_check_interval=2", "trainer.max_time=null",
    "features=on_the_fly", "batches.batch_size=4", "batches.splits.validation.num_images=2",
    "dtype=float32", "device=cpu",
]  # fmt: skip


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """The working folder, which also has the place of data/, with miniature weights."""
    write_tiny_weights(tmp_path / "data" / "weights")
    shutil.copytree(PROMPTS, tmp_path / "data" / "prompts")
    monkeypatch.setenv("LANTERN_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(name: str, monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_the_lossless_image_is_the_same_in_fewer_passes(home, monkeypatch, capsys):
    run("lossless_image.py", monkeypatch)
    same, passes = capsys.readouterr().out.splitlines()
    assert same.endswith("True")
    plain, fast = map(int, passes.partition(":")[2].split(","))
    assert fast < plain
    assert (home / "lossless.png").is_file()


def test_the_own_rule_commits_more_the_more_it_relaxes(home, monkeypatch, capsys):
    run("own_rule.py", monkeypatch)
    rates = [float(line.rpartition(": ")[2].split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert rates == sorted(rates)
    assert len(list(home.glob("rule_*.png"))) == 3


def test_the_own_drafter_grows_trees(home, monkeypatch, capsys):
    run("own_drafter.py", monkeypatch)
    rates = [float(line.rpartition(": ")[2].split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert len(rates) == 2
    assert min(rates) > 1
    assert (home / "own_drafter.png").is_file()


def test_the_own_targets_window_gives_its_tokens(home, monkeypatch, capsys):
    run("own_target.py", monkeypatch)
    assert capsys.readouterr().out.splitlines()[0].endswith("True")
    assert (home / "own_target.png").is_file()


def test_glm_images_window_gives_its_tokens(home, monkeypatch, capsys):
    FAMILIES["glm_image"].make(home / "checkpoint")
    run("glm_image.py", monkeypatch, str(home / "checkpoint"), "a red sphere", *TINY_GLM_IMAGE)
    assert capsys.readouterr().out.splitlines()[0].endswith("True")
    assert (home / "glm_image.png").is_file()


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_scripts_and_one_line(name, home, monkeypatch, caplog):
    """Catches a line that leaves the script to the model's own loop, or that changes what the script has or does."""
    write, hub_id, smaller = DOCUMENTED[name]
    (home / "checkpoint").mkdir()
    write(home / "checkpoint")
    source = (EXAMPLES / f"accelerate_{name}.py").read_text()
    (line,) = [line for line in source.splitlines() if line.endswith("# the line")]
    assert sum(bool(line.strip()) for line in source.split('"""')[2].splitlines()) <= 15
    for old, made in ({hub_id: str(home / "checkpoint")} | smaller).items():
        source = source.replace(old, made)
    found, forwards = [], []
    for script in (source.replace(line, ""), source):
        with counted_forwards() as count:
            torch.manual_seed(0)
            exec(compile(script, name, "exec"), variables := {})
        outputs = variables["outputs"]
        found.append(pil_to_tensor(outputs[0]) if isinstance(outputs, list) else outputs)
        forwards.append(count())
        next(home.glob(f"{name}.*")).unlink()
    own, made = found
    assert (type(own), own.dtype, own.device) == (type(made), made.dtype, made.device)
    assert torch.equal(own, made)
    assert forwards[1] < forwards[0] / (2 if "negative_prompt" in source else 1)  # of two laws a pass each
    assert "not accelerated" not in caplog.text


@contextmanager
def counted_forwards() -> Iterator[Callable[[], int]]:
    """Of decoder layers."""
    passed = []
    handle = register_module_forward_pre_hook(lambda module, _: passed.append("DecoderLayer" in type(module).__name__))
    try:
        yield lambda: sum(passed)
    finally:
        handle.remove()


@pytest.mark.full
def test_a_drafter_is_trained_on_a_folder_and_measured(home, monkeypatch):
    """The script calls a python that writes down what it is given, which is then carried out here."""
    write_captioned_scenes(home / "images", 12)
    (home / "bin").mkdir()
    (home / "bin" / "python").write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    (home / "bin" / "python").chmod(0o755)
    command = ["bash", str(EXAMPLES / "train_on_your_folder.sh"), str(home / "images"), str(home / "mine")]
    own = os.environ | {"PATH": f"{home}/bin:{os.environ['PATH']}"}
    done = subprocess.run([*command, *TINY_TRAINING], check=True, capture_output=True, text=True, env=own)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with trainings_here(monkeypatch):
        for line in done.stdout.splitlines():
            run_script(monkeypatch, *ast.literal_eval(line))
    assert read_rows(home / "mine" / "evaluation" / "results.jsonl")[-1]["method"] == "refined_jacobi"
