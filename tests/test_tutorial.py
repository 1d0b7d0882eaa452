"""docs/tutorial.md, carried out: its files are written and its commands run in order, on miniature weights and with
a shorter training; what it shows must be printed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.offline_runs import runs_below
from support.paths import ROOT
from support.tiny_weights import write_tiny_weights

from lantern.evaluation.rows import read_rows

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
    "make_images.py": [],
    "check_my_rule.py": [],
}  # fmt: skip


def shape_of(line: str) -> str:
    """A line without its numbers, missing values and spacing, which differ from run to run."""
    return re.sub(r"\s+", " ", re.sub(r"((?<!\w)-)?\d[\d.,]*(e-\d+)?|(?<= )-(?= |$)", "#", line)).strip()


def is_printed(shown: str, printed: str) -> bool:
    """Whether a line of the page was printed; … stands for anything, and numbers may differ."""
    pattern = ".*".join(map(re.escape, shape_of(shown).split("…")))
    return any(re.fullmatch(pattern, shape_of(line)) for line in printed.splitlines())


def arguments(command: str, folder: Path) -> list[str]:
    """A python command of the page with this interpreter, its program's path, and what makes it quick."""
    _, program, *words = shlex.split(command.replace("quality.num_images=32", "quality.num_images=8"))
    is_own = (folder / program).is_file()
    places = [] if is_own else [f"paths.weights={folder}/weights", f"paths.cache_dir={folder}/cache"]
    return [sys.executable, str((folder if is_own else ROOT) / program), *words, *SMALL[program], *places]


def run(command: str, folder: Path, said: list[str]) -> str:
    """What a command prints; what it says on its standard error joins `said`. It has a W&B service of its own, which
    has written all when it ends: one of this process, made by an earlier test, would be asked to go on."""
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}
    environment.pop("WANDB_SERVICE", None)
    words = arguments(command, folder) if command.startswith("python ") else ["bash", "-c", command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stderr[-3000:]}"
    said.append(f"{command}\n{done.stderr[-3000:]}")
    return done.stdout


def carry_out(folder: Path, said: list[str]) -> list[str]:
    """Writes the page's files, runs its commands, and returns the shown lines that the commands above them have not
    printed. said: takes what the commands say on their standard error."""
    printed, missing = "", []
    for kind, text in BLOCK.findall(PAGE.read_text()):
        if kind == "sh":
            commands = [line for line in text.splitlines() if not line.startswith(NEEDS_AN_ACCOUNT)]
            printed = "".join(run(command, folder, said) for command in commands)
        elif kind == "text":
            missing += [line for line in text.splitlines() if not is_printed(line, printed)]
        else:  # a file, named in its first line
            path = folder / text.splitlines()[0].removeprefix("# ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return missing


@pytest.mark.full
def test_the_tutorial_can_be_followed_from_its_first_line_to_its_last(tmp_path):
    """Catches a command, a file or a printed line of the page that the programs no longer have."""
    write_tiny_weights(tmp_path / "weights", side=8)
    said: list[str] = []
    assert carry_out(tmp_path, said) == []
    runs = tmp_path / "runs" / "tutorial"
    row = read_rows(runs / "rule" / "results.jsonl")[-1]
    assert (row["acceptance"], row["acceptance.factor"], row["lossless"]) == ("boost", 2, False)
    assert row["law"] == "acceptance.factor=2 changes the law"
    factors = [read_rows(path)[-1]["acceptance.factor"] for path in sorted(runs.glob("sweep/*/results.jsonl"))]
    assert factors == [1, 2, 4]
    tracked = runs_below(runs / "sweep", len(factors) + 2, "\n".join(said))  # plain decoding's and the summary's, too
    assert {tracked_run.run.run_group for tracked_run in tracked} == {"evaluate-sweep"}


def test_a_shown_line_is_compared_with_what_is_printed():
    """Catches a comparison that anything passes."""
    printed = "AR   1.00 [1.00, 1.00]  -\nwritten: /somewhere/report.html\n"
    assert is_printed("AR  2.31 [1.97, 2.50]   0.4", printed)
    assert is_printed("…/report.html", printed)
    assert not is_printed("AR  2.31 [1.97, 2.50]", printed)
    assert not is_printed("…/results.csv", printed)
