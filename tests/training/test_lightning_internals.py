"""The checkpoints that depend on private interfaces of Lightning."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LambdaCallback
from support.tiny_tasks import fit_saving, target_task

from lantern.training.run.budget import Budget, WarmupCosine
from lantern.training.run.lightning_internals import batches_before
from lantern.training.run.run_state import BestCheckpoint

OFTEN, SELDOM = timedelta(0), timedelta(minutes=3)


class EndedBefore(pl.Callback):
    """Notes the steps that are validated, and ends the process as a signal would before the validation of one."""

    def __init__(self, steps: list[int], step: int | None = None) -> None:
        self.steps, self.step = steps, step

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.global_step == self.step:
            raise SystemExit
        self.steps.append(trainer.global_step)


@pytest.mark.parametrize("interval", [OFTEN, SELDOM])
def test_a_run_killed_during_a_validation_makes_it_again(weights, tmp_path, interval):
    """Catches a checkpoint of the step that is validated: resumed from it, Lightning counts the validation as done; and
    all steps lost where the first validation is ended."""
    steps, path = [], tmp_path / "latest.ckpt"
    with pytest.raises(SystemExit):
        fit_saving(target_task(weights), tmp_path, EndedBefore(steps, 4), interval=interval)
    assert torch.load(path, weights_only=True)["global_step"] == 3
    whole, resumed = target_task(weights), target_task(weights)
    fit_saving(resumed, tmp_path, EndedBefore(steps), ckpt_path=str(path))
    assert steps == [4, 8]
    fit_saving(whole, tmp_path / "whole")
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


def test_what_is_drawn_is_keyed_by_the_batches_before(weights, tmp_path):
    """Catches the batches of an accumulated step, or those of a resumed run, that draw the same numbers."""
    found = []
    noted = LambdaCallback(on_train_batch_start=lambda trainer, task, *_: found.append(batches_before(task)))
    fit_saving(target_task(weights), tmp_path, noted, steps=3, accumulate=2)
    fit_saving(target_task(weights), tmp_path, noted, steps=5, accumulate=2, ckpt_path=str(tmp_path / "latest.ckpt"))
    assert found == [*range(8)]  # the last of an epoch's three is a step alone


class SecondPerStep(Budget):
    """A limit of time that every step takes a second of."""

    def on_fit_start(self, trainer: pl.Trainer, *args: object) -> None:
        self.trainer = trainer

    def time_elapsed(self, stage: str = "train") -> float:
        return self.trainer.global_step


def test_a_run_killed_in_the_validation_behind_its_time_loses_no_more_than_a_step(weights, tmp_path):
    """Catches a short training by time, whose only validation is the last one, that begins anew."""
    callbacks = WarmupCosine(1), SecondPerStep("00:00:00:03"), EndedBefore([], 3)
    with pytest.raises(SystemExit):
        fit_saving(target_task(weights), tmp_path, *callbacks)
    assert torch.load(tmp_path / "latest.ckpt", weights_only=True)["global_step"] == 2


@pytest.mark.parametrize("steps", [4, 5])
def test_the_last_step_is_saved_and_a_longer_run_goes_on_from_it(weights, tmp_path, steps):
    """Validated or not. Catches ckpt_path=last without a file after a short run, or minutes old after a longer one."""
    whole, ended, longer = (target_task(weights) for _ in range(3))
    fit_saving(whole, tmp_path / "whole")
    fit_saving(ended, tmp_path, steps=steps)
    path = tmp_path / "latest.ckpt"
    assert torch.load(path, weights_only=True)["global_step"] == steps
    fit_saving(longer, tmp_path, ckpt_path=str(path))
    torch.testing.assert_close(longer.state_dict(), whole.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("place", ["before", "moved", "gone"])
def test_a_run_resumed_in_another_folder_keeps_its_best_score(place, tmp_path):
    """Catches an export of the best step since the resume instead of the best of all, and one of a folder that was
    copied or moved before that exports what lies in the original, or nothing."""
    made = BestCheckpoint(tmp_path / "before", monitor="val/loss")
    made.best_model_score, made.best_model_path = torch.tensor(3.1), str(tmp_path / "before" / "best.ckpt")
    made.best_k_models = {made.best_model_path: made.best_model_score}
    resumed = BestCheckpoint(tmp_path / "after", monitor="val/loss")
    for folder in {place, "before"} if place != "gone" else ():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "best.ckpt").write_text(folder)
    resumed.on_load_checkpoint(SimpleNamespace(ckpt_path=tmp_path / place / "latest.ckpt"), None, {})
    resumed.load_state_dict(made.state_dict())
    own = str(tmp_path / "after" / "best.ckpt")
    assert resumed.dirpath == str(tmp_path / "after")
    if place == "gone":
        assert (resumed.best_model_score, resumed.best_model_path) == (None, "")
    else:
        assert resumed.best_model_score == 3.1
        assert (resumed.best_model_path, *resumed.best_k_models) == (own, own)
        assert Path(own).read_text() == place
