"""The folder of a run: whole checkpoints, the checkpoint to resume from, and what of an earlier run is renamed."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from support.made_recipes import made_run
from support.tiny_tasks import MemorySplits, fit_saving, target_task

from lantern.drafters.export import exported_step
from lantern.errors import LanternError
from lantern.models.checkpoints import load_weights
from lantern.runtime.provenance import write_provenance
from lantern.training.data_module import TrainingData
from lantern.training.run.entry import carry_out
from lantern.training.run.fit import export, fit, write_exported
from lantern.training.run.run_state import (
    CAPTIONS,
    BestCheckpoint,
    RunFolder,
    WholeCheckpoints,
    checkpoint_to_resume,
    is_finished,
    keep_old_metrics,
    named_checkpoint,
    named_weights,
    unfinished_checkpoint,
)  # fmt: skip


def save(path: Path, *steps: int) -> None:
    for step in steps:
        WholeCheckpoints().save_checkpoint({"step": step, "weights": torch.full((500,), float(step))}, path)


def step_of(path: Path) -> int:
    return torch.load(path, weights_only=True)["step"]


@pytest.mark.parametrize("call", range(6))
def test_a_save_that_is_cut_short_anywhere_leaves_a_whole_checkpoint(call, tmp_path, monkeypatch):
    """The disk is full, or the process ends, at the n-th system call of the save."""
    path, left = tmp_path / "latest.ckpt", [call]
    save(path, 1, 2)

    def counted(real):
        def tried(*arguments, **settings):
            left[0] -= 1
            if left[0] == -1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **settings)

        return tried

    with monkeypatch.context() as patch:
        for name in ("fsync", "replace", "chmod"):
            patch.setattr(os, name, counted(getattr(os, name)))
        with suppress(LanternError):
            save(path, 3)
    assert step_of(path) == (3 if left[0] >= 0 else 2)
    assert [file.name for file in tmp_path.iterdir()] == ["latest.ckpt"]


def test_ckpt_path_names_the_last_and_the_best_of_the_run_folder(tmp_path):
    folder = tmp_path / "checkpoints"
    with pytest.raises(LanternError, match=r"ckpt_path=last \(.*latest.ckpt\) is no file; give hydra.run.dir="):
        named_checkpoint("last", tmp_path)
    save(folder / "latest.ckpt", 1, 2)
    save(folder / "best.ckpt", 1)
    assert named_checkpoint("last", tmp_path) == folder / "latest.ckpt"
    assert named_checkpoint("best", tmp_path) == folder / "best.ckpt"
    assert named_checkpoint(str(folder / "best.ckpt"), tmp_path / "other") == folder / "best.ckpt"
    assert named_checkpoint(None, tmp_path) is None


@pytest.mark.parametrize("name", ["target", CAPTIONS])
def test_a_run_does_not_go_on_with_another_target_or_other_captions(name, tmp_path):
    """Catches a drafter that one target has begun and another one ends, and a position in another order of images."""
    latest = tmp_path / "checkpoints" / "latest.ckpt"
    save(latest, 1)
    (tmp_path / "config.yaml").write_text("task_name: drafter\n")
    write_provenance(tmp_path, {}, {name: "aa"})
    config = {"task_name": "drafter"}
    assert unfinished_checkpoint(tmp_path, config, {name: "aa", "model.folder": "cc"}) == str(latest)
    with pytest.raises(LanternError, match=f"{name} was aa, is bb; put them back"):
        unfinished_checkpoint(tmp_path, config, {name: "bb"})


@pytest.mark.parametrize("launcher", ["TORCHELASTIC", "SLURM"])
def test_a_restart_by_a_launcher_goes_on_from_its_own_last_checkpoint(tmp_path, monkeypatch, launcher):
    """Catches a restart that begins again at the checkpoint that the command names."""
    asked = tmp_path / "given.ckpt"
    latest = tmp_path / "checkpoints" / "latest.ckpt"
    save(latest, 1)
    save(asked, 1)
    (tmp_path / "config.yaml").write_text("task_name: drafter\nckpt_path: null\n")
    config = {"task_name": "drafter", "ckpt_path": str(asked)}
    assert checkpoint_to_resume(tmp_path, config, asked, {}) == str(asked)  # of a run that began without it
    config["ckpt_path"] = None
    monkeypatch.setenv(f"{launcher}_RESTART_COUNT", "1")
    assert checkpoint_to_resume(tmp_path, config, asked, {}) == str(latest)
    latest.unlink()
    assert checkpoint_to_resume(tmp_path, config, asked, {}) == str(asked)


@pytest.mark.parametrize(("ckpt_path", "resumed"), [("given.ckpt", "latest"), ("last", "given"), ("best", "given")])
def test_a_killed_run_that_began_from_a_file_goes_on_when_the_same_command_is_given(tmp_path, ckpt_path, resumed):
    """Catches hours of a killed fine-tuning that are trained again. `last` and `best` name this run's own files."""
    asked, latest = tmp_path / "given.ckpt", tmp_path / "checkpoints" / "latest.ckpt"
    for path in (asked, latest):
        save(path, 1)
    config = {"task_name": "drafter", "lr": 1, "ckpt_path": ckpt_path}
    assert checkpoint_to_resume(tmp_path, config, asked, {}) == str(asked)  # the first start
    (tmp_path / "config.yaml").write_text(f"task_name: drafter\nlr: 1\nckpt_path: {ckpt_path}\n")
    assert checkpoint_to_resume(tmp_path, config, asked, {}) == str({"latest": latest, "given": asked}[resumed])
    assert checkpoint_to_resume(tmp_path, config | {"lr": 2}, asked, {}) == str(asked)  # another run, from that file
    latest.unlink()
    assert checkpoint_to_resume(tmp_path, config, asked, {}) == str(asked)


def test_a_killed_training_run_is_resumed_and_its_metrics_are_kept(tmp_path):
    """Catches a restart that overwrites the last checkpoint, or that fewer devices refuse, and lost metrics."""
    config = {"task_name": "drafter", "lr": 1, "device": "cuda:1", "trainer": {"devices": 1}}  # of another machine
    assert unfinished_checkpoint(tmp_path, config, {}) is None
    latest = tmp_path / "checkpoints" / "latest.ckpt"
    latest.parent.mkdir()
    torch.save({"step": 1}, latest)
    (tmp_path / "config.yaml").write_text("task_name: drafter\nlr: 1\ndevice: cuda:0\ntrainer: {devices: 2}\n")
    assert unfinished_checkpoint(tmp_path, config, {}) == str(latest)
    with pytest.raises(LanternError, match=f"other settings.*ckpt_path={latest}"):
        unfinished_checkpoint(tmp_path, config | {"lr": 2}, {})
    (tmp_path / "drafter").mkdir()
    (tmp_path / "drafter" / "config.json").touch()  # killed while it exported
    assert unfinished_checkpoint(tmp_path, config, {}) == str(latest)
    (tmp_path / "drafter" / "model.safetensors").touch()  # it had ended: this is another one
    assert unfinished_checkpoint(tmp_path, config | {"lr": 2}, {}) is None
    for curve in ("first", "second"):
        (tmp_path / "metrics.csv").write_text(curve)
        keep_old_metrics(tmp_path)
    assert [(tmp_path / f"metrics-{n}.csv").read_text() for n in (1, 2)] == ["first", "second"]
    assert not (tmp_path / "metrics.csv").exists()


CONFIG = {"task_name": "target", "ckpt_path": "best.ckpt"}


def left_behind(folder: Path) -> dict[str, str]:
    """An earlier run's folder, and what is in it by name."""
    (folder / "target").mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    for name in ("target/model.safetensors", "config.yaml"):
        (folder / name).write_text("task_name: target")
    for name in ("latest", "best"):
        torch.save({"of": name}, folder / "checkpoints" / f"{name}.ckpt")
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def trained(folder: Path, weights: Path, batch_size: int) -> None:
    beginning = RunFolder(folder, CONFIG, "cpu", {}, None)
    trainer = pl.Trainer(
        default_root_dir=folder, accelerator="cpu", max_steps=2, callbacks=[beginning], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    fit(trainer, target_task(weights), TrainingData(MemorySplits(), batch_size, seed=3), None)


def test_a_start_that_is_refused_changes_nothing_in_its_folder(weights, tmp_path):
    """Catches a finished run that is trained anew, and an unfinished one that no command goes on with any more."""
    before = left_behind(tmp_path)
    with pytest.raises(LanternError, match="do not fill a batch"):
        trained(tmp_path, weights, batch_size=400)
    assert contents(tmp_path) == before


def test_a_start_keeps_beside_what_a_restart_would_take_for_its_own(weights, tmp_path):
    """Catches a restart, before the first checkpoint of this run, that goes on from the earlier one's."""
    left_behind(tmp_path)
    best = tmp_path / "checkpoints" / "best.ckpt"
    trained(tmp_path, weights, batch_size=4)
    kept = {path.name for path in (tmp_path / "checkpoints").iterdir()} | {path.name for path in tmp_path.iterdir()}
    assert {"target-1", "latest-1.ckpt", "best.ckpt", "config.yaml", "provenance.json"} <= kept
    assert not {"target", "latest.ckpt"} & kept
    assert checkpoint_to_resume(tmp_path, CONFIG, best, {}) == str(best)


@pytest.mark.parametrize("changed", [{}, {"seed": 7}, {"data": {"folder": "other"}}, {"read": {"target": "bb"}}])
def test_a_best_score_counts_only_on_the_data_seed_and_target_it_was_measured_on(changed, weights, tmp_path):
    """Catches a run that begins from another's checkpoint on harder data, and exports the other run's weights."""
    for name, others, given in (("a", {}, {}), ("b", changed, {"ckpt_path": str(tmp_path / "a" / "latest.ckpt")})):
        folder = tmp_path / name
        best = BestCheckpoint(folder, "best", monitor="val/loss", enable_version_counter=False)
        batches = {"splits": {"validation": {"max_time": name, "share": None}}}  # a training's time, which none takes
        config = CONFIG | {"seed": 0, "data": {"folder": "own"}, "batches": batches} | others
        claim = RunFolder(folder, config, "cpu", others.get("read", {}), None)
        trainer = fit_saving(task := target_task(weights), folder, claim, best, steps=5 if name == "a" else 8, **given)
        export(task, trainer, folder / "target")
        if name == "a":  # a score that nothing beats
            content = torch.load(folder / "latest.ckpt", weights_only=True)
            (key,) = (key for key in content["callbacks"] if key.startswith("BestCheckpoint"))
            unbeaten = {"best_model_score": torch.tensor(-1.0), "kth_value": torch.tensor(-1.0)}
            unbeaten["best_k_models"] = {str(folder / "best.ckpt"): torch.tensor(-1.0)}
            content["callbacks"][key] |= unbeaten
            assert content["validated"]["step"] == 4
            torch.save(content, folder / "latest.ckpt")
    assert best.best_model_path == str(folder / "best.ckpt")  # if need be a copy of a's, whose run may go on
    own, other = (load_weights(tmp_path / name / "target")[0] for name in "ab")  # of a's step 4, not of its last one
    assert all(torch.equal(own[key], other[key]) for key in own) == (not changed)
    assert [exported_step(tmp_path / name / "target")["step"] for name in "ab"] == [4, 8 if changed else 4]
    assert claim.validated["step"] == 8
    assert claim.validated["figures"].keys() == {"val/loss", "val/top1"}


def test_the_exported_step_is_noted_with_the_figures_of_its_own_validation(tmp_path):
    """Catches the figures of a later validation, or of an earlier one beside weights that were not validated."""
    figures = {"val/loss": 2.0}
    for step, found in ((4, figures), (5, {})):
        write_exported(tmp_path / "drafter", {"global_step": step, "validated": {"step": 4, "figures": figures}})
        assert exported_step(tmp_path / "drafter").items() >= {"step": step, "figures": found}.items()


def test_a_finished_training_prints_the_next_command_again(tmp_path, capsys):
    """Catches a command without the settings that its target needs, and none at all."""
    write_exported(tmp_path / "drafter", {"global_step": 4}, ["prompts=classes"])
    for name, said in (("drafter", "prompts=classes"), ("target", "model.folder=")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
        finished = OmegaConf.create({"task_name": name, "ckpt_path": None, "seed": 0})
        OmegaConf.save(finished, tmp_path / "config.yaml")
        carry_out(finished, tmp_path, None, ["model=llamagen_c2i_b"])
        assert said in capsys.readouterr().out.splitlines()[-1]


def test_a_finished_point_is_not_trained_again(tmp_path):
    """Catches a sweep that trains all over, and one that takes a run of other settings for its own."""
    folder = made_run(tmp_path / "lk-0")
    config = OmegaConf.load(folder / "config.yaml")
    config.paths = {"cache_dir": "before"}
    OmegaConf.save(config, folder / "config.yaml")
    config = OmegaConf.to_container(config)
    assert is_finished(folder, config)
    assert is_finished(folder, config | {"paths": {"cache_dir": "moved"}})
    with pytest.raises(LanternError, match=r"lk-0 holds a run of other settings.*hydra\.sweep\.dir"):
        is_finished(folder, config | {"seed": 5})
    assert not is_finished(tmp_path / "lk-1", config)
    (folder / "drafter" / "model.safetensors").unlink()  # killed while it was exported
    assert not is_finished(folder, config)


def test_a_finished_training_of_other_code_is_not_taken_for_this_one(tmp_path, monkeypatch):
    """Catches the weights of a user's recipe as it was before it was edited."""
    folder = made_run(tmp_path / "lk-0")
    monkeypatch.syspath_prepend(tmp_path)
    config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml")) | {"recipe": {"_target_": "my_recipe.Own"}}
    OmegaConf.save(config, folder / "config.yaml")
    (tmp_path / "my_recipe.py").write_text("STEPS = 1\n")
    write_provenance(folder, config, named_weights(config))
    assert is_finished(folder, config)
    (tmp_path / "my_recipe.py").write_text("STEPS = 2\n")
    with pytest.raises(LanternError, match="on other code: user's code was my_recipe"):
        is_finished(folder, config)
