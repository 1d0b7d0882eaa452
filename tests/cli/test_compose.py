"""A configuration composed beside another Hydra program, against Hydra's own compose, which needs the global one."""

import os
import subprocess
import sys

import pytest
from hydra import version
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
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
    command = [sys.executable, str(program), "+own=7", f"hydra.run.dir={tmp_path}/run"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "7"]


def test_no_hydra_is_left_behind_where_there_was_none():
    """Catches a later @hydra.main that finds Hydra initialised, or its compatibility level chosen."""
    GlobalHydra.instance().clear()
    before = version.getbase()
    composed(CONF, "evaluate", ["tree=chain"])
    assert not GlobalHydra.instance().is_initialized()
    assert version.getbase() == before


@pytest.mark.parametrize(
    "overrides",
    [
        ["+method=lantern_pp", "acceptance.lam=3", "++sampling.top_k=500"],
        ["metrics=[fidelity,clip_score]", 'prompts=\'["a red sphere on wood","wood"]\'', "+acceptance.name='a b'"],
        ["model=llamagen_c2i_b", "+tree@published=eagle2", "~budget", "speed={num_prompts:1,max_retimed:0}"],
    ],
)
def test_overrides_mean_what_they_mean_to_hydra(overrides):
    expected = hydras_own("evaluate", *overrides)
    assert composed(CONF, "evaluate", overrides) == expected


@pytest.mark.parametrize("wrong", ["tree.lenght=2", "tree.length=1,2"])
def test_an_override_that_does_not_fit_is_hydras_error(wrong):
    with pytest.raises(HydraException):
        composed(CONF, "evaluate", ["tree=chain", wrong])
