"""`make gpu`: runs the tests that need a GPU and a list of settings, each in a process of its own, and writes a report
with the results of each; a step that fails does not end the others."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch

from lantern.errors import LanternError
from lantern.evaluation.rows import Row, encode, read_rows
from lantern.runtime.files import replace_text
from lantern.runtime.home import program_of
from lantern.runtime.overrides import override
from tools.markdown import table_lines

B_SIZE = ("model.dim=768", "model.num_layers=12", "model.num_heads=12")  # LlamaGen-B's layers
TOKENS = ("+experiment=benchmark", "study.batch_sizes=[1]", "study.num_nodes=[1]", "~study.trees.auto")
STEPS: dict[str, tuple[str, ...]] = {  # settings of `evaluate.py`, by name
    "float32": (*TOKENS, "dtype=float32"),
    "float32_window": (*TOKENS, "dtype=float32", "drafter=refined_jacobi", "~study.trees.static"),
    "bfloat16": (*TOKENS, "dtype=bfloat16"),
    "bfloat16_window": (*TOKENS, "dtype=bfloat16", "drafter=refined_jacobi", "~study.trees.static"),
    "embedded": ("+experiment=benchmark", "study.batch_sizes=[1,4,16,64]"),
    "llamagen_b": ("+experiment=benchmark_xl", *B_SIZE),
    "llamagen_xl": ("+experiment=benchmark_xl",),
    "field": (
        "+sweep=field", "speed.num_prompts=8", "quality.num_images=0", "output_tv.num_positions=0",
        "tracking.mode=disabled",
    ),
}  # fmt: skip
TESTS = ("-m", "pytest", "-q", "-m", "gpu", "tests/test_gpu.py")
COLUMNS = {  # of the report, by the file of a step's rows
    "benchmark.jsonl": (
        "nodes", "pass_ms", "over_one", "batch", "is", "speedup", "equal_images", "round_ms", "graphs",
        "graphs_mib",
    ),
    "results.jsonl": ("drafter", "tree", "acceptance", "lossless", "cuda_graphs", "speedup", "speedup_low"),
}  # fmt: skip
TAIL = 20  # lines of a failed step's output in the report


class Outcome(NamedTuple):
    """What a step returned and wrote."""

    name: str
    code: int  # 0: it went well
    seconds: float
    output: str
    rows: list[Row]
    columns: Sequence[str]


def choose_steps(names: Sequence[str]) -> dict[str, Sequence[str]]:
    """The named steps, or all; LanternError for an unknown name."""
    steps = {"tests": TESTS, **STEPS}
    for name in names:
        if name not in steps:
            raise LanternError(f"step {name} is unknown; give some of {','.join(steps)}")
    return {name: given for name, given in steps.items() if not names or name in names}


def run(folder: Path, steps: Mapping[str, Sequence[str]]) -> list[Outcome]:
    """Runs every step, but for the tests in folder/<name>; writes environment.json, <name>.log and report.md."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "environment.json", encode(environment(), indent=2) + "\n")
    evaluate, _ = program_of("evaluate.py")
    outcomes: list[Outcome] = []
    for name, given in steps.items():
        print(f"{name}: {' '.join(given)}", flush=True)
        if name == "tests":
            command = [sys.executable, *given]
        else:
            places = [override(f"hydra.{kind}.dir", folder / name) for kind in ("run", "sweep")]
            command = [*evaluate, *given, *places]
            shutil.rmtree(folder / name, ignore_errors=True)  # rows of an earlier `make gpu`, of other code perhaps
        outcomes.append(_step(folder, name, command))
        replace_text(folder / "report.md", report(outcomes))  # after every step: a later one may end the machine
    return outcomes


def environment() -> Row:
    """Versions and the GPU's properties; those of the latter are None without one."""
    found = torch.cuda.is_available()
    properties = torch.cuda.get_device_properties(0) if found else None
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": properties.name if found else None,
        "capability": list(torch.cuda.get_device_capability()) if found else None,
        "memory_gib": properties.total_memory / 2**30 if found else None,
        "devices": torch.cuda.device_count(),
    }


def _step(folder: Path, name: str, command: list[str]) -> Outcome:
    started = perf_counter()
    offline = os.environ | {"WANDB_MODE": os.environ.get("WANDB_MODE", "offline")}
    log = folder / f"{name}.log"
    with log.open("w") as file:  # read while the step runs, and there if the machine ends it
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=offline, check=False)
    paths = [path for pattern in ("*.jsonl", "*/*.jsonl") for path in sorted((folder / name).glob(pattern))]
    files = [(path, COLUMNS[path.name]) for path in paths if path.name in COLUMNS]
    rows = [row for path, _ in files for row in read_rows(path)]
    columns = files[0][1] if files else ()
    return Outcome(name, done.returncode, perf_counter() - started, log.read_text(errors="replace"), rows, columns)


def report(outcomes: Sequence[Outcome]) -> str:
    """All rows of all steps as Markdown, and the end of the output of those that failed."""
    parts = ["# On a GPU", "", f"    {json.dumps(environment())}", ""]
    for outcome in outcomes:
        parts += [f"## {outcome.name}", "", f"{_state(outcome)}, {outcome.seconds:.0f} s", ""]
        if outcome.code or not outcome.rows:
            parts += [f"    {line}" for line in outcome.output.splitlines()[-TAIL:]]
        parts += [*_table(outcome), ""]
    return "\n".join(parts) + "\n"


def _state(outcome: Outcome) -> str:
    return "ok" if outcome.code == 0 else f"FAILED with status {outcome.code}"


def _table(outcome: Outcome) -> list[str]:
    if not outcome.rows:
        return []
    cells = ([_short(row.get(column)) for column in outcome.columns] for row in outcome.rows)
    return table_lines(outcome.columns, cells)


def _short(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    """python -m tools.gpu <folder> [tests,embedded]; ends with status 1 if a step failed or there is no GPU."""
    if not torch.cuda.is_available():
        sys.exit(
            f"torch {torch.__version__} (CUDA {torch.version.cuda}) sees no GPU; install a newer driver, or torch for "
            "an older CUDA: make gpu GPU_INDEX=https://download.pytorch.org/whl/cu126"
        )
    try:
        steps = choose_steps(sys.argv[2].split(",") if len(sys.argv) > 2 else ())
    except LanternError as error:
        sys.exit(f"error: {error}")
    outcomes = run(Path(sys.argv[1]).resolve(), steps)
    print(report(outcomes))
    sys.exit(int(any(outcome.code for outcome in outcomes)))


if __name__ == "__main__":
    main()
