"""python train.py +sweep=recipe: its points compose, a killed sweep continues, and it ends with a table."""

import csv
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import create_config_search_path
from hydra.conf import ConfigSourceInfo
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf, open_dict
from support.configs import composed_with_hydra
from support.made_recipes import WAY, made_run
from support.paths import CONF, ROOT
from support.recipes import NAMES
from support.tiny_weights import write_tiny_weights

from lantern.cli import subcommand
from lantern.errors import LanternError
from lantern.identity import write_provenance
from lantern.models.checkpoints import save_weights
from lantern.reporting.wandb_runs import Tracker
from lantern.training import recipe_sweep
from lantern.training.run_steps import is_finished, named_weights


def test_the_sweep_takes_every_recipe_of_eagle_and_two_seeds():
    """All but the one for drafter=parallel. Catches a list of recipes that a new one is not in."""
    names = [name for name in NAMES if name != "p_eagle"]
    axes = composed_with_hydra("train", "+sweep=recipe").hydra.sweeper.params
    loader = ConfigLoaderImpl(create_config_search_path(str(CONF)))
    overrides = OverridesParser.create(loader).parse_overrides([f"{key}={value}" for key, value in axes.items()])
    (points,) = BasicSweeper.split_arguments(overrides, None)
    assert sorted(points) == sorted([f"recipe={name}", f"seed={seed}"] for name in names for seed in (0, 1))


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_a_point_with_a_folder_of_its_own_and_equal_data(name, monkeypatch):
    """Catches W&B runs of one name, which cannot be told apart."""
    cfg = composed_with_hydra("train", "+sweep=recipe", f"recipe={name}", "seed=1")
    monkeypatch.setattr(HydraConfig.instance(), "cfg", cfg)
    assert (cfg.hydra.sweep.subdir, cfg.logger.wandb.name) == (f"{name}-1", f"{name}-1")
    assert (cfg.batches.seed, cfg.batches.splits.validation.seed, cfg.images.config.seed) == (1, 0, 0)


def test_a_finished_point_is_not_trained_again(tmp_path):
    """Catches a sweep that trains all over, and one that takes a run of other settings for its own."""
    folder = made_run(tmp_path / "lk-0")
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    assert is_finished(folder, config)
    with pytest.raises(LanternError, match=r"lk-0 holds a run of other settings.*hydra\.sweep\.dir"):
        is_finished(folder, config | {"seed": 5})
    assert not is_finished(tmp_path / "lk-1", config)
    (folder / "drafter" / "model.safetensors").unlink()  # killed while it was exported
    assert not is_finished(folder, config)


def test_the_settings_of_another_run_are_named(tmp_path):
    """Catches a search through two configurations, and a cache that was moved, which changes no weight."""
    folder = made_run(tmp_path / "lk-0")
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    config |= {"seed": 0, "task": {"lr": 1, "depth": 2}, "paths": {"root": "r", "cache_dir": "a"}}
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(config))
    assert is_finished(folder, config | {"paths": {"root": "r", "cache_dir": "b"}})
    now = config | {"seed": 5, "task": {"lr": 3}, "paths": {"root": "s", "cache_dir": "b"}}
    told = "other settings (seed was 0, is 5; task.lr was 1, is 3; task.depth was 2, is not given; 1 more in its config"
    with pytest.raises(LanternError, match=re.escape(told)):
        is_finished(folder, now)


def test_a_finished_point_of_other_weights_is_not_taken_for_its_own(tmp_path):
    """Catches a sweep of a target that was trained anew, half of whose drafters are of the old one."""
    folder, target = made_run(tmp_path / "lk-0"), tmp_path / "target"
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml")) | {"model": {"folder": str(target)}}
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(config))
    save_weights(target, {"weight": torch.zeros(2)}, {})
    before = named_weights(config)
    write_provenance(folder, config, before | {"target": "also recorded"})
    assert is_finished(folder, config)
    save_weights(target, {"weight": torch.ones(2)}, {})
    said = f"lk-0 holds a run on other weights: model.folder was {before['model.folder']}, is .*; put them back"
    with pytest.raises(LanternError, match=said):
        is_finished(folder, config)


def test_a_finished_sweep_is_reported_anew_by_another_figure(tmp_path):
    """Catches settings of the report and of disk budgets that count as settings of the training."""
    folder = made_run(tmp_path / "lk-0")
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))

    def under(ranked_by: str, budget_gib: int, accelerator: object) -> dict:
        sweep = {"name": "recipe", "ranked_by": ranked_by, "decoding": {"split": "dev"}}
        table, trainer = {"budget_gib": budget_gib, "layers": None}, {"max_steps": 3, "accelerator": accelerator}
        return config | {"sweep": sweep, "feature_table": table, "trainer": trainer}

    (folder / "config.yaml").write_text(OmegaConf.to_yaml(under(WAY, 4, "auto")))
    now = under("tokens_per_step/static_shared", 20, {"_target_": "lantern.training.precision.default_accelerator"})
    assert is_finished(folder, now)
    with pytest.raises(LanternError, match="holds a run of other settings"):
        is_finished(folder, now | {"trainer": {"max_steps": 4}})


def test_every_finished_drafter_is_decoded_with_on_the_target_it_was_trained_on(tmp_path, monkeypatch):
    """Catches commands that do not compose, and drafters that are measured on another target or with other noise."""
    for name in ("lk-0", "race-1"):
        made_run(tmp_path / name)
    (tmp_path / "hass-0").mkdir()
    commands = []
    monkeypatch.setattr(
        subcommand.subprocess, "run", lambda command, **_: commands.append(command) or SimpleNamespace(returncode=0)
    )
    settings = recipe_sweep.overrides_of({"split": "dev", "speed": {"num_prompts": 3}, "prompts": ["a ring, red"]})
    recipe_sweep.decode(tmp_path, [*settings, "sampling.temperature=0.5"])
    configs = [composed_with_hydra("evaluate", *command[2:]) for command in commands]
    assert [cfg.drafter.checkpoint for cfg in configs] == [f"{tmp_path}/{name}/drafter" for name in ("lk-0", "race-1")]
    assert configs[0].hydra.sweep.dir == f"{tmp_path}/lk-0/decoded"
    assert (configs[0].speed.num_prompts, configs[0].prompts, configs[0].quality.num_images) == (3, ["a ring, red"], 0)
    assert configs[0].sampling.temperature == 0.5


def test_a_folder_of_yamls_is_given_to_every_decoding(sweep, tmp_path, monkeypatch):
    """Catches drafters that are all trained and none decoded with: evaluate.py does not know the model of the yamls."""
    given = []
    monkeypatch.setattr(recipe_sweep, "decode", lambda _, settings: given.extend(settings))
    source = ConfigSourceInfo(path=str(tmp_path / "my_conf"), schema="file", provider="command-line")
    with open_dict(sweep.config):
        sweep.config.hydra.runtime.update(cwd=str(tmp_path), config_sources=[source])
    sweep.at_exit[0]()
    assert given[:2] == ["--config-dir", "my_conf"]


def test_what_a_target_needs_is_given_to_its_decoding_unless_the_sweep_says_it(tmp_path, monkeypatch):
    """Catches captions of scenes for a model of classes, which ends every sweep without a report."""
    made_run(tmp_path / "lk-0")
    (tmp_path / "lk-0" / "evaluate_with.json").write_text('["prompts=classes", "quality.num_images=0"]')
    commands = []
    monkeypatch.setattr(recipe_sweep, "run_command", lambda command, _: commands.append(command))
    recipe_sweep.decode(tmp_path, ["split=dev"])
    recipe_sweep.decode(tmp_path, ["prompts=[3]", "split=dev"])
    needed = [composed_with_hydra("evaluate", *command[1:]).prompts for command in commands]
    assert needed == ["classes", [3]]


@pytest.mark.parametrize("reported", [["eagle1", "lk"], []])
def test_a_failed_decoding_leaves_the_others_their_report_and_says_how_to_go_on(reported, tmp_path, monkeypatch):
    """Catches one drafter that keeps all others from being compared, and an exit status of 0."""
    names = [f"{recipe}-0" for recipe in ("hass", *reported)]
    for name in names:
        made_run(tmp_path / name)
    shutil.rmtree(tmp_path / "hass-0" / "decoded")
    commands = []

    def run(command, **_):
        commands.append(command)
        return SimpleNamespace(returncode=3 if "/hass-0/" in " ".join(command) else 0)

    monkeypatch.setattr(subcommand.subprocess, "run", run)
    cfg = composed_with_hydra("train", "+sweep=recipe", f"hydra.sweep.dir={tmp_path}", "logger.wandb=null")
    report = recipe_sweep.RecipeReport()
    report.on_multirun_start(cfg)
    report.on_job_start()  # nothing is left to be done at exit
    with pytest.raises(SystemExit, match=rf"the drafters hass-0 could .* hydra\.sweep\.dir={tmp_path}"):
        report.on_multirun_end()
    assert len(commands) == len(names)
    assert (tmp_path / "recipes.csv").exists() == bool(reported)
    if reported:
        with (tmp_path / "recipes.csv").open() as file:
            assert sorted(row["recipe"] for row in csv.DictReader(file)) == reported


@pytest.mark.parametrize(
    ("override", "is_kept"),
    [("model=anole", True), ("model.folder=a", True), ("device=cpu", True), ("trainer.max_steps=3", False),
     ("seed=0,1", False), ("recipe=lk", False), ("sampling.top_k=4", True)],
)  # fmt: skip
def test_the_settings_of_the_target_are_given_to_evaluate(override, is_kept):
    assert bool(recipe_sweep.FORWARDED.match(override)) == is_kept


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A started sweep: its callback, its configuration, what it does at exit and the folders it has reported."""
    at_exit, reported = [], []
    monkeypatch.setattr(recipe_sweep.atexit, "register", at_exit.append)
    monkeypatch.setattr(recipe_sweep.atexit, "unregister", lambda done: at_exit.remove(done) if at_exit else None)
    monkeypatch.setattr(recipe_sweep, "decode", lambda *_: None)
    monkeypatch.setattr(recipe_sweep, "report_recipes", lambda folder, *_: reported.append(folder))
    config = composed_with_hydra("train", "+sweep=recipe", "recipe=lk", "seed=1", f"hydra.sweep.dir={tmp_path}")
    report = recipe_sweep.RecipeReport()
    report.on_multirun_start(config)
    return SimpleNamespace(report=report, config=config, at_exit=at_exit, reported=reported)


FAILED = JobReturn(status=JobStatus.FAILED, _return_value=LanternError("the training loss is nan"))


def test_a_recipe_that_fails_is_named_and_the_others_are_reported_at_exit(sweep, tmp_path, caplog):
    """Hydra raises the failure in place of on_multirun_end. Catches hours of training without a table."""
    sweep.report.on_job_start(config=sweep.config)
    sweep.report.on_job_end(sweep.config, FAILED)
    assert "lk-1 failed (the training loss is nan); the other points go on" in caplog.text
    (report,) = sweep.at_exit
    report()
    sweep.report.on_multirun_end()
    assert sweep.reported == [tmp_path]  # once


def test_a_sweep_that_is_ended_is_not_reported(sweep, monkeypatch):
    """Catches hours of decoding behind Ctrl-C, and reports by the processes of a launcher."""
    monkeypatch.setattr(recipe_sweep.sys, "last_type", KeyboardInterrupt, raising=False)
    sweep.at_exit[0]()  # a launcher's processes were training
    sweep.report.on_job_start(config=sweep.config)
    assert not sweep.at_exit  # SIGTERM during a point
    monkeypatch.undo()
    pickle.loads(pickle.dumps(sweep.report))._report_at_exit()
    assert not sweep.reported


def test_a_report_that_fails_is_one_sentence_and_a_failure(sweep, monkeypatch, capsys):
    def fail(*_: object) -> None:
        raise LanternError("no room")

    monkeypatch.setattr(recipe_sweep, "decode", fail)
    sweep.at_exit[0]()
    assert capsys.readouterr().err == "error: the drafters are trained, their report is not made: no room\n"
    sweep.report.on_multirun_start(sweep.config)
    with pytest.raises(SystemExit, match="their report is not made: no room"):
        sweep.report.on_multirun_end()


LEFT_OUT, ALONE = "leave {} out", "varies recipe and seed alone, not {}; start a sweep for each value"


@pytest.mark.parametrize(("given", "told"), [
    ("drafter=parallel", LEFT_OUT), ("drafter=eagle,parallel", LEFT_OUT), ("task.lr=1e-3,2e-3", ALONE),
    ("select_by=length,agreement", ALONE),
])  # fmt: skip
def test_what_the_sweep_cannot_decode_with_or_tell_apart_is_refused_before_it_is_trained(sweep, given, told):
    """Catches hours of training of drafters that evaluate.py refuses, and points that share a folder."""
    sweep.config.hydra.overrides.task.append(given)
    with pytest.raises(SystemExit, match=told.format(given)):
        sweep.report.on_multirun_start(sweep.config)


def test_the_report_is_a_table_curves_and_a_page(tmp_path, capsys):
    for name, tokens in {"eagle1-0": 3.0, "eagle1-1": 3.1, "lk-0": 4.0, "lk-1": 4.1}.items():
        made_run(tmp_path / name, tokens)
    recipe_sweep.report_recipes(tmp_path, WAY, "eagle1", Tracker(mode="disabled"))
    with (tmp_path / "recipes.csv").open() as file:
        assert [(row["recipe"], row["seeds"]) for row in csv.DictReader(file)] == [("lk", "2"), ("eagle1", "2")]
    with (tmp_path / "runs.csv").open() as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["0", "1", "0", "1"]
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert "overlap 1" in capsys.readouterr().out
    assert "data:image/png;base64," in (tmp_path / "recipes.html").read_text()


@pytest.mark.full
def test_two_recipes_with_two_seeds_end_in_one_table_and_a_second_start_repeats_nothing(tmp_path):
    write_tiny_weights(tmp_path / "weights")
    command = [
        sys.executable, str(ROOT / "train.py"), "+sweep=recipe", "recipe=eagle1,race", "seed=0,1",
        f"paths.weights={tmp_path}/weights", f"paths.cache_dir={tmp_path}/cache", "rendered.num_train=8",
        "rendered.num_validation=2", "batches.splits.validation.num_images=2", "batches.batch_size=4",
        "batches.validation_batch_size=2", "trainer.max_time=null", "trainer.max_steps=3",
        "trainer.val_check_interval=2", "trainer.accelerator=cpu", "device=cpu", "dtype=float32",
        "distil.validation_depth=2", "+sweep.decoding.prompts=[wood,sand]", "sweep.decoding.split=all",
        "sweep.decoding.speed.num_prompts=2", "+sweep.decoding.speed.max_retimed=0",
        f"hydra.sweep.dir={tmp_path}/sweep",
    ]  # fmt: skip
    environment = os.environ | {"WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    with (tmp_path / "sweep" / "recipes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["recipe"] for row in rows) == ["eagle1", "race"]
    ways = ("chain5_ratio", "chain5_shared_noise", "static_shared", "refined_jacobi", "refined_branches")
    assert all(float(row[f"tokens_per_step/{way}"]) >= 1 for row in rows for way in ways)
    assert all(float(row["step_s"]) > 0 and row["steps"] == "3.0" for row in rows)
    assert len(list((tmp_path / "sweep").glob("*/wandb/offline-run-*"))) == 4  # a point, a run
    made = {path: path.stat().st_mtime_ns for path in _made(tmp_path / "sweep")}
    again = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert again.returncode == 0, again.stderr[-3000:]
    assert {path: path.stat().st_mtime_ns for path in _made(tmp_path / "sweep")} == made


def _made(sweep: Path) -> list[Path]:
    """Weights, and the records of decoded images."""
    return [*sweep.glob("*/drafter/*"), *sweep.glob("*/decoded/*/prompts.jsonl")]
