"""A row measured again: the run is found, and only harmless overrides are replayed."""

import json
from pathlib import Path

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf
from support.paths import CONF

from lantern.cli.composing import composed
from lantern.cli.reproduce import check_recorded, recorded_run, replay
from lantern.errors import LanternError
from lantern.runtime.files import replace_text

METHODS = [[f"+method={path.stem}"] for path in sorted((CONF / "method").glob("*.yaml"))]
HOSTILE = [
    "acceptance._target_=os.system", "+acceptance={_target_:os.system,command:x}", "+acceptance._args_=[1]",
    "+metrics.x=[1,{rule:{_target_:os.system}}]", "drafter.redraw.path=os.system", "++drafter.redraw={path:os.system}",
    "acceptance.k=${oc.env:HOME}", "+acceptance.rule='${oc.decode:x}'", "acceptance=../../runs/evil", "metrics=[../x]",
    "hydra.run.dir=/tmp", "+hydra.searchpath=[/tmp]", "hydra/launcher=joblib", "+format=released",
    "+format@acceptance.inner=released", "+callbacks@metrics.x=default", "acceptance.k=1,2", "+tree.x@_global_=static",
    "acceptance._partial_=false", "+tree@_target_=static", "+a=extend_list(1)",
    "+mygroup=../../runs/evil", "sweep=../x",
]  # fmt: skip


@pytest.mark.parametrize("override", HOSTILE)
def test_a_recorded_override_that_could_name_code_is_refused(override, tmp_path):
    """Catches code that runs because a results folder names it, directly or behind an interpolation or another yaml."""
    with pytest.raises((LanternError, HydraException)):
        check_recorded(["seed=1", override], ["seed=1", override], "run")


@pytest.mark.parametrize("overrides", [
    *METHODS, ["acceptance=lantern", "acceptance.delta=0.1", "tree=chain", "tree.length=3", "seed=3"],
    ["+sweep=delta", "metrics=[fidelity]", 'prompts=["a red ring"]', "drafter.checkpoint=../mine", "+loop=rows"],
    ["++acceptance.k=7", "~budget", "tree@published=chain", "+experiment=benchmark", "hydra_is_mine=1"],
    ['prompts=["wait... a ring"]', "prompts=../captions.txt"],
])  # fmt: skip
def test_the_overrides_of_every_command_may_be_replayed(overrides):
    check_recorded(overrides, overrides, "run")


@pytest.fixture
def run(tmp_path):
    row = {"drafter": "eagle", "acceptance": "lantern", "tree": "static", "delta": 0.1, "model": "llamagen"}
    replace_text(tmp_path / "summary.json", json.dumps({"x": row}))
    replace_text(tmp_path / "finished.json", json.dumps({"overrides": ["acceptance.delta=0.1"]}))
    return tmp_path


@pytest.mark.parametrize("name", ["summary.json", "finished.json"])
def test_a_damaged_run_is_not_reproduced(name, run):
    assert recorded_run(run)[0] == ["acceptance.delta=0.1"]
    (run / name).write_text("{")
    for folder in (run, Path(300 * "x")):
        with pytest.raises(LanternError, match="holds no finished run; give the folder of one"):
            recorded_run(folder)


@pytest.mark.parametrize("beside", ["seed=3", "dry_run=true"])
def test_settings_that_would_be_ignored_are_refused_beside_reproduce(beside, run):
    cfg = OmegaConf.create({"reproduce": str(run)})
    with pytest.raises(LanternError, match=f"leave {beside} out"):
        replay(cfg, ["reproduce=run", "paths.weights=/w", beside], run)
    with pytest.raises(LanternError, match="would write over"):
        replay(cfg, ["reproduce=run"], run)


@pytest.mark.parametrize("setting", ["prompts={}", "prompts={}:secret", "prompts=file://{}", "+tree.prompts.source={}"])
def test_a_recorded_file_is_read_only_if_the_command_names_it_again(setting, run):
    """Catches private lines in a report that is shared."""
    (private := run / "private.csv").write_text("secret\na word\n")
    text = setting.format(private)
    with pytest.raises(LanternError, match="if you trust it, add "):
        check_recorded(["prompts=demo", "tree=chain", text], ["reproduce=run"], run)
    check_recorded(["prompts=demo", "prompts=['a ring']", text], ["reproduce=run", text], run)


def test_yamls_of_ones_own_are_composed_beside_conf(tmp_path):
    replace_text(tmp_path / "acceptance" / "mine.yaml", "_target_: my_rules.Mine\n")
    assert composed(CONF, "evaluate", ["acceptance=mine"], [str(tmp_path)]).acceptance._target_ == "my_rules.Mine"
