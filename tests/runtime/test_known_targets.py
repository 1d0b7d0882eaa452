"""A configuration read from a file builds nothing but what conf/ builds."""

import json
import os
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import OmegaConf
from support.paths import ROOT

from lantern.cli.compose import composed
from lantern.cli.error_messages import wrong_kind
from lantern.cli.reproduce import recorded_run
from lantern.errors import LanternError
from lantern.runtime.known_targets import check_known
from lantern.tuning.auto import CHOICE, SavedChoice

CONF = ROOT / "conf"
METHODS = sorted(path.stem for path in (CONF / "method").glob("*.yaml"))
EXACT = "lantern.acceptance.exact.Exact"
GETTER = "hydra.utils.get_method"
HOSTILE = {  # where its name stands: the node
    "acceptance._target_ torch.load": {"_target_": "torch.load", "f": "rule.pt", "weights_only": False},
    "acceptance._target_ os.system": {"_target_": "os.system", "command": "touch owned"},
    "acceptance._target_ builtins.eval": {"_target_": "builtins.eval", "_args_": ["1"]},
    "acceptance._target_ lantern.cli.run_setting.os.system": {"_target_": "lantern.cli.run_setting.os.system"},
    "acceptance._target_ lantern.drafters.export.write_released":
        {"_target_": "lantern.drafters.export.write_released"},
    "acceptance.redraw.path os.system": {"_target_": EXACT, "redraw": {"_target_": GETTER, "path": "os.system"}},
    "acceptance.redraw.path lantern.cli.run_setting.os.system":
        {"_target_": EXACT, "redraw": {"_target_": GETTER, "path": "lantern.cli.run_setting.os.system"}},
    "acceptance._args_ ['os.system']": {"_target_": GETTER, "path": "lantern.drafters.jacobi.jacobi.redraw",
                                        "_args_": ["os.system"]},
    "acceptance.rules[1][0]._target_ os.system": {"rules": [1, [{"_target_": "os.system"}]]},
    "acceptance._target_ subprocess.run": {"_partial_": True, "_target_": "subprocess.run"},
    "acceptance.config.inner._target_ os.system":
        {"_target_": EXACT, "_recursive_": False, "config": {"inner": {"_target_": "os.system"}}},
    "acceptance._target_ ${name}": {"_target_": "${name}"},
    "acceptance.rule ${name}": {"rule": "${name}"},
    "acceptance._target_ {'a': 1}": {"_target_": {"a": 1}},
    "acceptance._target_  lantern.acceptance.exact.Exact": {"_target_": f" {EXACT}"},
}  # fmt: skip


def shared_row(folder: Path, config: dict) -> None:
    (folder / "summary.json").write_text(json.dumps({"x": {"drafter": "none", "acceptance": "exact", "tree": "none"}}))
    (folder / "provenance.json").write_text(json.dumps({"config": config}))


@pytest.mark.parametrize("case", HOSTILE)
def test_a_shared_row_builds_nothing_that_conf_does_not(case, tmp_path):
    """Catches code that runs because a results folder names it: directly, in a list, a partial, a nested
    configuration, behind an interpolation, or as a function that is fetched and called later."""
    shared_row(tmp_path, {"acceptance": HOSTILE[case], "name": "os.system"})
    place, name = case.split(" ", 1)
    with pytest.raises(LanternError) as caught:
        recorded_run(str(tmp_path))
    for said in (f"reproduce={tmp_path}", f" at {place},", name, "--config-dir"):
        assert said in str(caught.value)


def test_a_stored_tree_builds_nothing_that_conf_does_not(tmp_path):
    shape = {"tree": {"_target_": "os.system", "command": f"touch {tmp_path}/owned"}}
    (tmp_path / CHOICE).write_text(json.dumps({"asked": "run", "shape": shape}))
    with pytest.raises(LanternError, match=r"'os.system' at tree._target_"):
        SavedChoice(tmp_path / CHOICE, "run").read()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("settings", [*([f"+method={name}"] for name in METHODS), ["tree=auto"],
                                      ["+experiment=benchmark"], ["metrics=[image_reward,clip_score,pick_score]"],
                                      ["model=anole"], ["model=emu3"], ["model=llamagen_t2i_stage2"]])  # fmt: skip
def test_every_shipped_setting_can_be_run_again(settings, monkeypatch, tmp_path):
    """Catches a list of names that lacks one which evaluate.py records, and a setting that is blamed for what another
    mistake has broken."""
    monkeypatch.setenv("LANTERN_ROOT", str(tmp_path))
    cfg = composed(CONF, "evaluate", settings)
    assert wrong_kind(cfg) is None
    check_known(OmegaConf.to_container(cfg, resolve=True), "a row")


def test_names_in_the_users_own_folder_are_trusted(tmp_path, monkeypatch):
    """Catches own parts (--config-dir) that cannot be run again, and trust that outlives the command that gave it."""
    rule = {"_target_": "my_rules.Mine"}
    (tmp_path / "mine" / "acceptance").mkdir(parents=True)
    (tmp_path / "mine" / "acceptance" / "mine.yaml").write_text("_target_: my_rules.Mine\n")
    (tmp_path / "mine" / "broken.yaml").write_text("[unclosed")
    with pytest.raises(LanternError, match=r"my_rules\.Mine"):
        check_known(rule, "a row")
    sources = [{"provider": "command-line", "path": str(tmp_path / "mine")}, {"provider": "schema", "path": ""}]
    run = OmegaConf.create({"runtime": {"config_sources": sources}})
    with monkeypatch.context() as patched:
        patched.setattr(HydraConfig, "initialized", lambda: True)
        patched.setattr(HydraConfig, "get", lambda: run)
        check_known(rule, "a row")
    with pytest.raises(LanternError):
        check_known(rule, "a row")


def test_hydra_alone_builds_such_nodes(tmp_path):
    """Catches attacks that Hydra refuses anyway, against which no check would be needed: it refuses some names only."""
    assert instantiate({"rules": [1, [{"_target_": "os.mkdir", "path": str(tmp_path / "owned")}]]})
    assert (tmp_path / "owned").is_dir()
    assert instantiate({"_target_": "lantern.cli.run_setting.os.getpid"}) == os.getpid()
