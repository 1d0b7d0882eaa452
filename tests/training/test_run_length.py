"""What is said of a training's limits, at its start and at its end."""

import logging

import pytest
import pytorch_lightning as pl
from support.configs import composed
from support.tiny_tasks import MemorySplits, target_task

from lantern.training.data_module import TrainingData
from lantern.training.run.schedule import WarmupCosine, tell_end, tell_limits


@pytest.mark.parametrize(("given", "said"), [
    (["trainer.max_steps=20000"], "trainer.max_steps=20000 ends after trainer.max_time=00:00:05:00 at the latest"),
    (["trainer.max_epochs=3"], "trainer.max_epochs=3 ends after trainer.max_time=00:00:05:00 at the latest"),
    (["trainer.max_time=null"], "this training has no limit"),
    (["trainer.max_steps=20000", "trainer.max_time=null"], ""),
    (["trainer.max_steps=20000", "trainer.max_time=00:01:00:00"], ""), ([], ""), (["task=tokenizer"], ""),
])  # fmt: skip
def test_a_limit_that_is_not_expected_is_told_at_the_start(given, said, caplog):
    """Catches 20,000 steps that end after five minutes of 300, and a rate that never decays."""
    caplog.set_level(logging.WARNING)
    tell_limits(composed("train", *given).trainer, given, "drafter")
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)


class Stop(pl.Callback):
    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        trainer.should_stop = trainer.global_step >= 2


@pytest.mark.parametrize(("limits", "stop", "said"), [
    ({"max_steps": 3}, (), "trained 3 steps: trainer.max_steps=3 is reached"),
    ({"max_steps": 3, "max_time": "00:01:00:00"}, (), "trained 3 steps: trainer.max_steps=3 is reached"),
    ({"max_epochs": 2}, (), "trained 6 steps: trainer.max_epochs=2 is reached"),
    ({"max_steps": 10**6, "max_time": "00:00:00:01"}, (), " steps: trainer.max_time=00:00:00:01 is reached"),
    ({"max_steps": 9}, (Stop(),), "trained 2 steps, stopped before its limits"),
])  # fmt: skip
def test_the_limit_that_is_reached_is_told_at_the_end(limits, stop, said, weights, tmp_path, capsys):
    trainer = pl.Trainer(
        accelerator="cpu", callbacks=[WarmupCosine(1), *stop], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=tmp_path,
        limit_val_batches=0, **({"max_epochs": -1} | limits),
    )  # fmt: skip
    trainer.fit(target_task(weights), TrainingData(MemorySplits(), batch_size=4, seed=3))
    tell_end(trainer, {"max_time": None} | limits)
    assert capsys.readouterr().out.endswith(f"{said}\n")
