"""The command for the first machine with a GPU, on the processor and at toy size."""

import json
from pathlib import Path

import pytest
import torch
from lantern.studies import gpu
from support.configs import composed_with_hydra
from support.tiny_weights import write_tiny_weights

FEW = ["study.num_prompts=1"]
BENCHMARK = [*FEW, "study.batch_sizes=[1]", "study.num_nodes=[1,4]"]
TOY = {
    "float32": FEW,
    "float32_window": FEW,
    "bfloat16": FEW,
    "bfloat16_window": FEW,
    "embedded": BENCHMARK,
    "field": ["+method=jacobi", "speed.num_prompts=1", "speed.max_retimed=0"],
}
FAILING = ("-c", "import sys; print('one test failed'); sys.exit(3)")


@pytest.fixture(scope="module")
def common(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("weights")
    return [f"paths.weights={write_tiny_weights(folder)}", f"paths.runs={folder}", "device=cpu"]


def toy(common: list[str], *names: str) -> dict[str, list[str]]:
    return {name: [*gpu.STEPS[name], *TOY[name], *common] for name in names}


@pytest.mark.parametrize("name", gpu.STEPS)
def test_every_step_composes(name):
    """Catches a setting that was renamed: nobody else runs these before there is a GPU."""
    cfg = composed_with_hydra("evaluate", *gpu.STEPS[name])
    assert cfg.study or cfg.sweep.name


def test_a_step_that_fails_is_in_the_report_and_the_others_run(tmp_path, common):
    """Catches a command that ends at its first failure, and losslessness that is not an equality of tokens."""
    failed, exact = gpu.run(tmp_path, toy(common, "float32"), FAILING)
    assert (failed.name, failed.code, exact.name, exact.code) == ("tests", 3, "float32", 0), exact.output
    assert {row["tree"] for row in exact.rows} >= {"none", "chain5", "static"}
    assert all(row["equal_images"] == row["images"] == 1 for row in exact.rows)
    text, shown = (tmp_path / "report.md").read_text(), gpu.summary([failed, exact])
    assert "FAILED with status 3" in text
    assert "one test failed" in text
    assert "tests: FAILED with status 3, 0 rows" in shown
    assert json.loads((tmp_path / "environment.json").read_text())["torch"] == torch.__version__
    assert "equal_images" in (tmp_path / "float32.log").read_text()


@pytest.mark.full
def test_all_steps_but_those_of_random_weights_run_at_toy_size(tmp_path, common):
    """Catches a step whose rows have moved to another file or key."""
    outcomes = gpu.run(Path(tmp_path), toy(common, *TOY), ("-c", "pass"))
    assert [(outcome.name, outcome.code) for outcome in outcomes] == [(name, 0) for name in ("tests", *TOY)]
    for outcome in outcomes[1:]:
        assert outcome.rows, outcome.name
        keys = {key for row in outcome.rows for key in row}
        assert set(outcome.columns) <= keys, outcome.name
    assert len(gpu.summary(outcomes).splitlines()) <= 60
