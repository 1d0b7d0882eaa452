"""What the commands import, and when: nobody waits for a library that is not used yet."""

import subprocess
import sys

import pytest
from support.paths import ROOT

HEAVY = ("torch", "torchvision", "transformers", "datasets", "torch_fidelity", "matplotlib", "wandb", "scipy.stats")
SHOW = f"print('imported:', [name for name in {HEAVY} if name in sys.modules])"
FIRST_IMAGE = f"""
import sys
from lantern.evaluation import contender
def shown(*_):
    {SHOW}
    raise SystemExit
contender.warm_up = shown
from lantern.cli.main import evaluate
evaluate()
"""


def imported(code: str, *arguments: str) -> str:
    """The line that SHOW prints in a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in made.stdout.splitlines() if line.startswith("imported:")]
    assert len(lines) == 1, made.stdout + made.stderr
    return lines[0]


@pytest.mark.parametrize(
    "module",
    ["lantern", "lantern.cli.main", "lantern.cli.sweep_callback", "lantern.score", "lantern.training.run.entry"],
)
def test_help_needs_no_heavy_library(module):
    """Catches an import of torch, or of what imports it, at the top of what an entry point needs for --help."""
    assert imported(f"import sys, {module}; {SHOW}") == "imported: []"


def test_help_is_printed_without_torch():
    """Catches a plugin or a callback that Hydra loads for --help."""
    code = f"import sys, atexit; atexit.register(lambda: {SHOW})\nfrom lantern.cli.main import evaluate; evaluate()"
    assert imported(code, "--help") == "imported: []"


@pytest.mark.full
def test_the_first_image_waits_for_torch_alone(tmp_path):
    """Catches an import of what draws, judges or tracks images, at the top of a module that decodes them."""
    settings = ["speed.num_prompts=1", "quality.num_images=8", "tracking.mode=disabled", "dtype=float32"]
    assert imported(FIRST_IMAGE, *settings, f"hydra.run.dir={tmp_path}") == "imported: ['torch']"
