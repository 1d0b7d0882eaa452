"""The command that trains all embedded weights: order, resuming, failure, and the whole chain at toy size."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.commands import run_script, trainings_here
from support.configs import composed

from lantern.errors import LanternError
from lantern.models.checkpoints import load_weights
from lantern.models.llamagen.weights_folder import load_target, load_tokenizer, tokens_hash
from lantern.runtime.files import read_object
from tools import weights

# exports a folder as train.py does; fails once if told to
STUB = """
import sys
from pathlib import Path
given = dict(setting.split("=", 1) for setting in sys.argv[1:])
run, task = Path(given["hydra.run.dir"]), given["task"].removesuffix("_self").replace("decoder", "tokenizer")
run.mkdir(parents=True, exist_ok=True)
starts = run / "starts"
starts.write_text(starts.read_text() + "+" if starts.exists() else "+")
if task == "target" and starts.read_text() == "+":
    sys.exit(3)
(run / task).mkdir()
seen = sorted(path.name for path in Path(given["paths.weights"]).iterdir())
(run / task / "model.safetensors").write_text(",".join(seen))
"""
PARTS = weights.parts()
SHORT = ["trainer.max_time=null", "trainer.max_steps=2", "trainer.val_check_interval=2"]
DRAWN = ["data.num_train=16", "batches.splits.validation.num_images=8"]
TOY = {
    "critic": [*SHORT, "batches.batch_size=4"],
    "encoder": ["data.num_train=64", "task.quantize_from=1", "trainer.max_steps=3", "trainer.val_check_interval=3"],
    "tokenizer": ["data.num_train=64", *SHORT],
    "target": ["rendered.num_train=32", *SHORT],
    "drafter": [*DRAWN, *SHORT],
}
SMALL = ["data.num_validation=8"]


@pytest.mark.parametrize("part", PARTS)
def test_every_part_composes_and_is_found_where_train_exports_it(part):
    """Catches a schedule in minutes too: weights that depend on how fast the machine was."""
    cfg = composed("train", *PARTS[part])
    assert cfg.task_name == weights.exported_by(PARTS[part])
    assert cfg.trainer.max_time is None


def test_a_chain_goes_on_where_it_failed_and_every_part_sees_those_before_it(tmp_path):
    """Catches finished parts that are trained twice, and parts that are trained on the shipped weights."""
    train = (sys.executable, "-c", STUB)
    with pytest.raises(LanternError, match="target ended with status 3"):
        weights.run(tmp_path, PARTS, train, {})
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["critic", "encoder", "tokenizer"]
    folder = weights.run(tmp_path, PARTS, train, {})
    seen = [(folder / part / "model.safetensors").read_text() for part in PARTS]
    before = list(PARTS)
    assert seen == [",".join(sorted(before[:count])) for count in range(len(before))]
    assert [len((tmp_path / part / "starts").read_text()) for part in before] == [1, 1, 1, 2, 1, 1]


def test_a_share_of_the_schedule_shortens_all_but_critic_and_tokenizer():
    quarter = weights.parts(0.25)
    assert quarter["target"][-1] == "trainer.max_steps=800"
    assert "data.num_train=1536" in quarter["drafter"]
    assert all(quarter[part] == PARTS[part] for part in ("critic", "encoder", "tokenizer"))


@pytest.mark.full
def test_the_chain_trains_a_target_and_drafters_that_belong_together(tmp_path: Path, monkeypatch):
    """Catches a part that reads the shipped weights: a target names the hash of its tokenizer."""
    names = "critic", "encoder", "tokenizer", "target", "drafter"
    parts = {name: [*PARTS[name], *TOY[name], *SMALL] for name in names}
    monkeypatch.setattr(weights, "run_program", lambda words: run_script(monkeypatch, "train.py", *words))
    with trainings_here(monkeypatch):
        folder = weights.run(tmp_path, parts, train=())
    target = load_target(folder / "target", folder / "tokenizer", dtype="float32", device="cpu")
    assert all((folder / part / "config.json").is_file() for part in parts)
    codes = [tokens_hash(load_tokenizer(folder / part)) for part in ("encoder", "tokenizer")]
    assert codes == [read_object(folder / "target" / "config.json")["tokens_hash"][:12]] * 2
    kept = {part: load_weights(folder / part)[0] for part in parts}
    assert {value.dtype for part in ("target", "drafter") for value in kept[part].values()} == {torch.float16}
    types = {(name.split(".")[0], value.dtype) for name, value in kept["tokenizer"].items()}
    assert {("encoder", torch.float32), ("decoder", torch.float16)} <= types  # the encoder makes tokens
    assert target.weights_hash in (folder / "drafter" / "config.json").read_text()


CHILD = """
import signal, sys, time
def save(*_):
    time.sleep(0.6)  # longer than subprocess.run would wait
    sys.exit(7)
signal.signal(signal.SIGINT, save)
print("ready", flush=True)
time.sleep(60)
"""
PARENT = "import sys; from tools.weights import run_program; print(run_program([sys.executable, '-c', sys.argv[1]]))"


def test_a_stopped_training_saves_before_the_command_that_runs_it_ends():
    """Catches a Ctrl-C after which the training is killed in the middle of its save."""
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as running:
        assert running.stdout.readline() == "ready\n"
        os.killpg(running.pid, signal.SIGINT)
        assert running.stdout.read() == "7\n"
    assert running.returncode == 0
