"""docs/tutorial.md, carried out: its files are written and its commands run in order, on miniature weights and with
a shorter training; what it shows must be printed."""

import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands import run_script, trainings_here
from support.offline_runs import runs_below
from support.paths import ROOT
from support.tiny_weights import write_tiny_weights

from lantern.evaluation.rows import read_rows
from lantern.laws import certificate

PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS_AN_ACCOUNT = "wandb sync"
SMALL = {
    "train.py": [
        "trainer.accelerator=cpu", "trainer.max_steps=2", "trainer.val_check_interval=2", "features=on_the_fly",
        "batches.batch_size=4", "batches.splits.validation.num_images=2", "dtype=float32",
        "data.size=64",
    ],
    "evaluate.py": [
        "dtype=float32", "device=cpu", "speed.max_retimed=0", "metrics.fidelity.num_references=32",
        "metrics.fidelity.resamples=20", "output_tv.redraws=64",
    ],
}  # fmt: skip


def shape_of(line: str) -> str:
    """A line without its numbers, missing values and spacing, which differ from run to run."""
    return re.sub(r"\s+", " ", re.sub(r"((?<!\w)-)?\d[\d.,]*(e-\d+)?|(?<= )-(?= |$)", "#", line)).strip()


def is_printed(shown: str, printed: str) -> bool:
    """Whether a line of the page was printed; … stands for anything, and numbers may differ."""
    pattern = ".*".join(map(re.escape, shape_of(shown).split("…")))
    return any(re.fullmatch(pattern, shape_of(line)) for line in printed.splitlines())


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Iterator[Callable[[str], str]]:
    """Carries a command out in tmp_path, a program of Python's in this process, and returns what it prints."""
    monkeypatch.setattr(certificate, "LONG_TREES", certificate.LONG_TREES[:1])  # whose images are counted
    monkeypatch.setattr(certificate, "APART", certificate.APART[:1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def carried_out(command: str) -> str:
        words = shlex.split(command.replace("quality.num_images=32", "quality.num_images=8"))
        if words[0] != "python":
            return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
        if Path(words[1]).is_file():
            runpy.run_path(words[1], run_name="__main__")
        else:
            places = [f"paths.weights={tmp_path}/weights", f"paths.cache_dir={tmp_path}/cache"]
            run_script(monkeypatch, words[1], *words[2:], *SMALL[words[1]], *places)
        return capsys.readouterr().out

    with trainings_here(monkeypatch):
        yield carried_out
    sys.modules.pop("my_rule", None)


def carry_out(run: Callable[[str], str]) -> list[str]:
    """Writes the page's files, runs its commands, and returns the shown lines that the commands above them have not
    printed."""
    printed, missing = "", []
    for kind, text in BLOCK.findall(PAGE.read_text()):
        if kind == "sh":
            commands = [line for line in text.splitlines() if not line.startswith(NEEDS_AN_ACCOUNT)]
            printed = "".join(run(command) for command in commands)
        elif kind == "text":
            missing += [line for line in text.splitlines() if not is_printed(line, printed)]
        else:  # a file, named in its first line
            path = Path(text.splitlines()[0].removeprefix("# "))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return missing


@pytest.mark.full
def test_the_tutorial_can_be_followed_from_its_first_line_to_its_last(run, tmp_path):
    """Catches a command, a file or a printed line of the page that the programs no longer have."""
    write_tiny_weights(tmp_path / "weights", side=8)
    assert carry_out(run) == []
    runs = tmp_path / "runs" / "tutorial"
    row = read_rows(runs / "rule" / "results.jsonl")[-1]
    assert (row["acceptance"], row["acceptance.factor"], row["lossless"]) == ("boost", 2, False)
    assert row["law"].startswith("acceptance.factor=2 is lossy")
    factors = [read_rows(path)[-1]["acceptance.factor"] for path in sorted(runs.glob("sweep/*/results.jsonl"))]
    assert factors == [1, 2, 4]
    tracked = runs_below(runs / "sweep", len(factors) + 2)  # plain decoding's and the summary's, too
    assert {offline.run.run_group for offline in tracked} == {"evaluate-sweep"}


def test_a_shown_line_is_compared_with_what_is_printed():
    """Catches a comparison that anything passes."""
    printed = "AR   1.00 [1.00, 1.00]  -\nwritten: /somewhere/report.html\n"
    assert is_printed("AR  2.31 [1.97, 2.50]   0.4", printed)
    assert is_printed("…/report.html", printed)
    assert not is_printed("AR  2.31 [1.97, 2.50]", printed)
    assert not is_printed("…/results.csv", printed)
