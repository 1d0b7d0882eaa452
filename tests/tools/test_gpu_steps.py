"""The steps of `make gpu`, on the processor and at toy size."""

import json
from types import SimpleNamespace

import pytest
import torch
from support.commands import run_script
from support.configs import composed_with_hydra
from support.paths import ROOT
from support.tiny_weights import write_tiny_weights

from lantern.runtime.home import program_of
from tools import gpu

FEW = ["study.num_prompts=1"]
BENCHMARK = [*FEW, "study.batch_sizes=[1]", "study.num_nodes=[1,4]"]
TOY = dict.fromkeys(("float32", "float32_window", "bfloat16", "bfloat16_window"), FEW) | {
    "embedded": BENCHMARK,
    "field": ["+method=jacobi", "speed.num_prompts=1", "speed.max_retimed=0"],
}
FAILING = ("-c", "import sys; print('one test failed'); sys.exit(3)")


@pytest.fixture(scope="module")
def common(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("weights")
    return [f"paths.weights={write_tiny_weights(folder)}", f"paths.runs={folder}", "device=cpu"]


@pytest.mark.parametrize("name", gpu.STEPS)
def test_every_step_composes(name):
    """Catches a setting that was renamed: nobody else runs these before there is a GPU."""
    cfg = composed_with_hydra("evaluate", *gpu.STEPS[name])
    assert cfg.study or cfg.sweep.name


def test_steps_are_chosen_by_name():
    assert list(gpu.choose_steps([])) == ["tests", *gpu.STEPS]
    assert list(gpu.choose_steps(["field", "tests"])) == ["tests", "field"]


def test_a_step_that_fails_is_in_the_report_and_the_others_run(tmp_path):
    """Catches a command that ends at its first failure."""
    failed, passed = gpu.run(tmp_path / "gpu", {"tests": FAILING, "field": ("--cfg", "job")})
    assert (failed.name, failed.code, passed.name, passed.code) == ("tests", 3, "field", 0), passed.output
    text = (tmp_path / "gpu" / "report.md").read_text()
    assert "FAILED with status 3" in text
    assert "one test failed" in text
    assert json.loads((tmp_path / "gpu" / "environment.json").read_text())["torch"] == torch.__version__


@pytest.mark.full
def test_all_steps_but_those_of_random_weights_run_at_toy_size(tmp_path, common, monkeypatch):
    """Catches a step whose rows have moved to another file or key, and losslessness that is no equality of tokens."""

    def here(command: list[str], **_: object) -> SimpleNamespace:
        run_script(monkeypatch, "evaluate.py", *command[len(program_of("evaluate.py")[0]) :])
        return SimpleNamespace(returncode=0)

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(gpu, "subprocess", SimpleNamespace(run=here, STDOUT=None))
    outcomes = gpu.run(tmp_path, {name: [*gpu.STEPS[name], *few, *common] for name, few in TOY.items()})
    assert [outcome.name for outcome in outcomes] == [*TOY]
    for outcome in outcomes:
        assert outcome.rows, outcome.name
        keys = {key for row in outcome.rows for key in row}
        assert set(outcome.columns) <= keys, outcome.name
    exact = outcomes[0].rows
    assert {row["tree"] for row in exact if "tree" in row} == {"none", "chain", "static"}
    assert {row["equal_images"] for row in exact if "tree" in row} == {1.0}
