"""What a command is started in: an empty shell variable, a home folder, a pipe; and paths, read as they were meant."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import instantiate
from omegaconf import OmegaConf
from support.commands import run_script
from support.configs import composed_with_hydra
from support.paths import CONF, ROOT

from lantern.api import overrides_of
from lantern.cli.composing import built, composed, one_at_a_time, shared
from lantern.cli.error_messages import without_hints
from lantern.runtime.overrides import override

EVALUATE = f"{shlex.quote(sys.executable)} {ROOT / 'evaluate.py'}"


def run(line: str, folder: Path) -> subprocess.CompletedProcess:
    """A line of sh, in a folder that is the home folder as well."""
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env=os.environ | {"HOME": str(folder)}, capture_output=True, text=True
    )


@pytest.mark.parametrize("given", ["dry_run=true", "--help"])
def test_a_reader_that_goes_away_is_no_traceback(given, tmp_path):
    """As of `| head`."""
    assert "Traceback" not in run(f"{EVALUATE} {given} | true", tmp_path).stderr


def test_run_folders_in_the_home_folder(tmp_path, monkeypatch):
    """Catches a folder named ~ in the working folder, of a run and of a sweep's points, which are composed anew."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    run_script(monkeypatch, "evaluate.py", "dry_run=true", "hydra.run.dir='~/one'")
    run_script(monkeypatch, "evaluate.py", "-m", "dry_run=true", "seed=1,2", "paths.runs='~/runs'")
    points = (tmp_path / "runs" / "evaluate").glob("*/*/.hydra/config.yaml")
    assert ((tmp_path / "one" / ".hydra").is_dir(), len(list(points))) == (True, 2)
    assert not (tmp_path / "work" / "~").exists()


def test_a_run_folder_without_a_name_is_refused():
    writable = instantiate(composed_with_hydra("evaluate").hydra.callbacks.writable)
    with pytest.raises(SystemExit, match=r"error: .*names no folder; give one"):
        writable.on_run_start(OmegaConf.create({"hydra": {"run": {"dir": ""}}}))


def test_every_setting_that_is_a_path_may_begin_with_the_home_folder(monkeypatch):
    """Catches one that its reader takes for a folder named ~; prompts in a list are no paths."""
    monkeypatch.setenv("HOME", "/home/me")
    given = ["paths.weights='~/w'", "paths.cache_dir='~/c'", "drafter.checkpoint='~/d'", "prompts=['~/a']"]
    config = OmegaConf.to_container(composed(CONF, "evaluate", given), resolve=True)
    assert config["model"]["folder"] == "/home/me/w/target"
    assert (config["paths"]["cache_dir"], config["drafter"]["checkpoint"]) == ("/home/me/c", "/home/me/d")
    assert config["prompts"] == ["~/a"]


@pytest.mark.parametrize("build", [built, shared, one_at_a_time])
def test_an_escaped_interpolation_is_a_text(build):
    """Catches a path that holds ${…}, escaped, and is resolved a second time when its object is built."""
    part = OmegaConf.create({"_target_": "builtins.dict", "path": r"a\${oc.env:HOME}b", "inner": {"list": [r"\${x}"]}})
    assert build(part) == {"path": "a${oc.env:HOME}b", "inner": {"list": ["${x}"]}}


TYPED = [
    "2026_11_26", "7", "1e3", "runs/epoch=3.ckpt", r"a\b", "true", "drafter", "/a/Photos (1)", "./im [1]", "~/it's",
]  # fmt: skip


@pytest.mark.parametrize("text", TYPED)
def test_a_path_is_the_text_that_was_typed(text, monkeypatch):
    """For the command line and for Python. Catches the folder 20261126 of hydra.run.dir=2026_11_26."""
    typed: list[str] = []
    given = ["train.py", f"hydra.run.dir={text}", f"drafter.checkpoint={text}", "seed=1_0", "trainer.max_steps=2_0"]
    monkeypatch.setattr(sys, "argv", given)
    without_hints(lambda: typed.extend(sys.argv[1:]))()
    folder, checkpoint, seed, steps = OverridesParser.create().parse_overrides(typed)
    assert [part.value() for part in (folder, checkpoint, seed, steps)] == [text, text, 10, 20]
    for given in ([f"drafter.checkpoint={text}"], {"drafter.checkpoint": text}):
        assert OverridesParser.create().parse_override(overrides_of(given)[0]).value() == text


@pytest.mark.parametrize("kept", ["ckpt_path=null", "drafter.checkpoint=a,b", "prompts=['a, b']", "to='a=b'"])
def test_what_is_grammar_for_a_path_stays_so(kept):
    assert overrides_of([kept]) == [kept]


VALUES = [
    Path("/home/jürgen/lantern"), Path("/a/lantern-main (1)/x"), Path("/a b/c,d=e#f&g'h"), '/say "hi"', r"bk\(x\)",
    "a\\", 3, 0.5, None, True, ["wood", "sand, wet"], "a/plain-path_1.ckpt",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_setting_is_read_back_by_hydra(value):
    """Catches a demo that fails below a folder with a letter or a sign of Hydra's grammar in its name."""
    key = "seed" if isinstance(value, int | float) else "hydra.run.dir"  # a folder 3 is a text
    read = OverridesParser.create().parse_override(override(key, value))
    assert (read.key_or_group, read.value()) == (key, str(value) if isinstance(value, Path) else value)
