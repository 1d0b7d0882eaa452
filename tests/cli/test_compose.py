"""A configuration composed beside another Hydra program, against Hydra's own compose, which needs the global one; and
what the commands import, and when."""

import subprocess
import sys

import pytest
from hydra import version
from hydra.core.global_hydra import GlobalHydra
from support.commands import python
from support.configs import composed as hydras_own
from support.paths import CONF, ROOT
from support.tiny_weights import write_tiny_weights

from lantern.cli.composing import composed

PROGRAM = """
import hydra, lantern
from hydra import version
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

@hydra.main(version_base="1.2", config_path=None)
def main(cfg):
    own, job = GlobalHydra.instance().hydra, HydraConfig.get().job.name
    model = lantern.load("llamagen", ["paths.weights=WEIGHTS", "dtype=float64", "device=cpu"])
    pipeline = model.pipeline(tree="chain", settings=["tree.length=2"])
    print(pipeline.drafter.depth, cfg.own)
    assert GlobalHydra.instance().hydra is own
    assert HydraConfig.get().job.name == job
    assert str(version.getbase()) == "1.2"

main()
"""


@pytest.mark.full
def test_loading_a_model_leaves_the_state_of_a_hydra_program_unchanged(tmp_path):
    """Catches a user's program that loses its own Hydra when it loads a model."""
    program, weights = tmp_path / "program.py", write_tiny_weights(tmp_path / "weights")
    program.write_text(PROGRAM.replace("WEIGHTS", str(weights)))
    done = python(str(program), "+own=7", f"hydra.run.dir={tmp_path}/run", folder=tmp_path, PYTHONPATH=str(ROOT))
    assert done.stdout.split() == ["2", "7"]


def test_no_hydra_is_left_behind_where_there_was_none():
    """Catches a later @hydra.main that finds Hydra initialised, or its compatibility level chosen."""
    GlobalHydra.instance().clear()
    before = version.getbase()
    composed(CONF, "evaluate", ["tree=chain"])
    assert not GlobalHydra.instance().is_initialized()
    assert version.getbase() == before


@pytest.mark.parametrize("overrides", [
    ["+method=lantern_pp", "acceptance.lam=3", "++sampling.top_k=500"],
    ["metrics=[fidelity,clip_score]", 'prompts=\'["a red sphere on wood","wood"]\'', "+acceptance.name='a b'"],
    ["model=llamagen_c2i_b", "+tree@published=eagle2", "~budget", "speed={num_prompts:1,max_retimed:0}"],
])  # fmt: skip
def test_overrides_mean_what_they_mean_to_hydra(overrides):
    expected = hydras_own("evaluate", *overrides)
    assert composed(CONF, "evaluate", overrides) == expected


HEAVY = ("torch", "torchvision", "transformers", "datasets", "torch_fidelity", "matplotlib", "wandb", "scipy.stats")
SHOW = f"print('imported:', [name for name in {HEAVY} if name in sys.modules])"
FIRST_IMAGE = f"""
import sys
from lantern.evaluation import sides
def shown(*_):
    {SHOW}
    raise SystemExit
sides.warm_up = shown
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


@pytest.mark.parametrize("module", [
    "lantern", "lantern.cli.main", "lantern.cli.sweep_callback", "lantern.score", "lantern.training.run.entry",
])  # fmt: skip
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
