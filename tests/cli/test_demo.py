"""The demo: its commands compose in every size, and its summary ranks by lower bounds."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from support.configs import composed, points_of
from support.paths import CONF, WEIGHTS

from lantern.cli.demo import choose_size, summary, sweep_command, training_command
from lantern.errors import LanternError

SETTINGS = OmegaConf.load(CONF / "demo.yaml")
PLACE, FOLDER = ["device=cpu", "dtype=float32"], Path("runs/demo")
AR = {"drafter": "none", "lossless": True, "speedup": 1.0}


@pytest.mark.parametrize("name", SETTINGS.sizes)
def test_both_commands_compose_and_have_their_sizes(name):
    """Catches a setting that was renamed, which the demo would meet after its training."""
    size = SETTINGS.sizes[name]
    _, *training = training_command(size, FOLDER, PLACE)
    assert composed("train", *training).rendered.num_train == size.training_images
    _, *sweep = sweep_command(size, FOLDER, PLACE)
    config = composed("evaluate", *(part for part in sweep if not part.startswith("acceptance.delta")))
    assert (config.speed.num_prompts, config.quality.num_images) == (size.num_prompts, size.num_images)
    assert (config.trained_drafter, config.dtype) == ("runs/demo/train/drafter", "float32")


def test_only_a_lossless_row_has_the_drafter_of_a_minute():
    """Catches LANTERN on a drafter trained for a minute, whose ruined images are taken for the method's, a share of the
    codes that is not LANTERN's, and a trained drafter that is in no row."""
    _, sweep, *given = sweep_command(SETTINGS.sizes.small, FOLDER, PLACE)
    points = points_of("demo", *(part for part in given if not part.startswith(("acceptance.", "hydra."))))
    configs = [composed("evaluate", sweep, *point) for point in points]
    lantern, windows = configs[:-2], configs[-2:]
    shipped = composed("evaluate").drafter.checkpoint
    assert {cfg.drafter.checkpoint for cfg in lantern} == {shipped}
    assert [cfg.drafter.checkpoint for cfg in windows] == [shipped, "runs/demo/train/drafter"]
    assert all(cfg.acceptance._target_.endswith("Exact") for cfg in windows)
    codes = json.loads((WEIGHTS / "tokenizer" / "config.json").read_text())["codebook_size"]
    assert {cfg.acceptance.k / codes for cfg in lantern} == {1000 / 2**14}


def test_a_demo_of_another_size_is_not_continued(tmp_path):
    """Catches a drafter of a minute that is evaluated as the one of the large demo."""

    def choose(name: str) -> object:
        return choose_size(OmegaConf.merge(SETTINGS, {"demo": {"size": name}}), tmp_path)

    with pytest.raises(LanternError, match=r"demo\.size=huge"):
        choose("huge")
    assert choose("small") == choose("small") == SETTINGS.sizes.small
    with pytest.raises(LanternError, match=r"demo\.size=small"):
        choose("large")


def window(weights: str, low: float | None, value: float) -> dict:
    return {
        "drafter": "refined_jacobi", "method": "refined_jacobi", "drafter_hash": weights, "lossless": True,
        "speedup": value, "speedup_low": low, "speedup_high": low and 2 * value - low,
    }  # fmt: skip


def relaxed(delta: float, low: float, value: float) -> dict:
    own = {"drafter": "eagle", "lossless": False, "tree": "chain3", "delta": delta, "output_tv": 0.21}
    return window("shipped", low, value) | own


def test_the_fastest_is_so_by_its_lower_bound():
    """Catches a winner by luck: the highest mean, with the widest bounds or with none."""
    rows = [AR, window("own", 1.2, 2.4), window("shipped", 1.8, 2.0), relaxed(0.1, 1.1, 3.0), relaxed(0.4, 1.9, 2.2)]
    lines = summary(rows, 60, "shipped", FOLDER)
    assert lines[1].startswith("Fastest at no price: refined_jacobi, shipped drafter, speed-up 2.00 [1.80, 2.20]")
    assert lines[2].startswith("Also lossless: refined_jacobi, trained drafter, speed-up 2.40 [1.20, 3.60]")
    assert "δ = 0.4 on chain3, shipped drafter, speed-up 2.20 [1.90, 2.50]; price: output TV 0.21" in lines[3]
    unbounded = summary([AR, window("own", None, 9.0), window("shipped", 0.5, 0.6)], 60, "shipped", FOLDER)
    assert "shipped" in unbounded[1]


CHILD = """
import signal, sys, time
def save(*_):
    time.sleep(0.6)  # longer than subprocess.run would wait
    sys.exit(7)
signal.signal(signal.SIGINT, save)
print("ready", flush=True)
time.sleep(60)
"""
PARENT = (
    "import sys; from lantern.runtime.home import run_program; print(run_program([sys.executable, '-c', sys.argv[1]]))"
)


def test_a_stopped_training_saves_before_the_command_that_runs_it_ends():
    """Catches a Ctrl-C after which the training is killed in the middle of its save."""
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as running:
        assert running.stdout.readline() == "ready\n"
        os.killpg(running.pid, signal.SIGINT)
        assert running.stdout.read() == "7\n"
    assert running.returncode == 0
