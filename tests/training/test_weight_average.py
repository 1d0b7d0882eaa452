"""The moving average of the weights: what it is, where it is used, and that a resumed run has the same."""

from copy import deepcopy
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from pytorch_lightning.callbacks import ModelCheckpoint
from support.configs import composed
from support.tiny_tasks import MemorySplits, drafter_task

from lantern.errors import LanternError
from lantern.models.checkpoints import load_weights
from lantern.training.data_module import TrainingData
from lantern.training.limits import check_numbers
from lantern.training.run_steps import export
from lantern.training.schedule import WarmupCosine
from lantern.training.weight_average import WeightAverage

DECAY = 0.8


class Steps(pl.Callback):
    """The weights after each step, and those that each validation saw."""

    def __init__(self) -> None:
        self.trained: list[dict] = []
        self.validated: list[dict] = []

    def on_train_batch_end(self, trainer, pl_module, *_) -> None:
        self.trained.append(deepcopy(pl_module.state_dict()))

    def on_validation_batch_start(self, trainer, pl_module, *_) -> None:
        self.validated.append(deepcopy(pl_module.state_dict()))


def fit(task, folder, averaged: bool = True, resumed: str | None = None, max_steps: int = 6):
    seen = Steps()
    average = instantiate(composed("train", "+average=ema", f"callbacks.average.decay={DECAY}").callbacks.average)
    kept = ModelCheckpoint(folder, "step-{step}", every_n_train_steps=3, save_top_k=-1)
    best = ModelCheckpoint(folder, "best", monitor="val/alpha_1", mode="max")
    callbacks = [*([average] if averaged else []), seen, WarmupCosine(warmup_steps=2), kept, best]
    trainer = pl.Trainer(
        default_root_dir=folder, accelerator="cpu", max_steps=max_steps, max_epochs=-1, callbacks=callbacks,
        logger=False, enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0,
        num_sanity_val_steps=0, check_val_every_n_epoch=None, val_check_interval=2,
    )  # fmt: skip
    trainer.fit(task, TrainingData(MemorySplits(), batch_size=4, seed=3), ckpt_path=resumed, weights_only=True)
    return trainer, seen


def averages(trained: list[dict]) -> list[dict]:
    """By hand: the first step's weights, then each step's with the weight 1 - DECAY."""
    found = [trained[0]]
    for weights in trained[1:]:
        found.append({name: DECAY * found[-1][name] + (1 - DECAY) * value for name, value in weights.items()})
    return found


def assert_close(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-6)


def test_the_average_is_validated_and_the_weights_are_trained_on(target, tmp_path):
    """Catches a validation of the newest weights, an average that training goes on from, and a start at weights that no
    step has touched."""
    _, plain = fit(drafter_task(target), tmp_path / "plain", averaged=False)
    _, seen = fit(drafter_task(target), tmp_path / "averaged")
    for own, other in zip(seen.trained, plain.trained, strict=True):
        assert_close(own, other)
    expected, validations = averages(seen.trained), len(seen.validated) // 3
    assert len(seen.validated) == 9  # batches of 4 of 12 images, after the steps 2, 4 and 6
    for index, weights in enumerate(seen.validated):
        assert_close(weights, expected[2 * (index // validations) + 1])
    assert (seen.validated[-1]["network.fc.weight"] - seen.trained[-1]["network.fc.weight"]).abs().max() > 1e-3


@pytest.mark.parametrize("monitored", [True, False])
def test_what_is_exported_is_the_average(target, tmp_path, monitored, capsys):
    """Of the best validation, or without one of the last step. Catches a checkpoint that holds the weights alone."""
    task = drafter_task(target)
    trainer, seen = fit(task, tmp_path)
    best = trainer.checkpoint_callbacks[-1]
    callbacks = [best] if monitored else []
    export(task, SimpleNamespace(callbacks=callbacks, loggers=[], is_global_zero=True), tmp_path / "drafter", [])
    found = {f"network.{name}": value for name, value in load_weights(tmp_path / "drafter")[0].items()}
    step = torch.load(best.best_model_path, weights_only=True)["global_step"] if monitored else 6
    assert_close(found, averages(seen.trained)[step - 1])


@pytest.mark.parametrize("step", [3, 6])
def test_an_interrupted_and_resumed_run_has_the_same_average_bit_by_bit(target, tmp_path, step):
    """Catches an average that begins anew, or from the weights, where a run is resumed; and the newest weights where
    the checkpoint of the last step leaves nothing to train, an end that Lightning does not tell of."""
    whole, resumed = drafter_task(target), drafter_task(target)
    fit(whole, tmp_path / "whole")
    fit(resumed, tmp_path / "resumed", resumed=str(tmp_path / "whole" / f"step-step={step}.ckpt"))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_the_frozen_target_is_not_copied(target, tmp_path, monkeypatch):
    """Catches a second target in memory."""

    def refuse(*_):
        raise AssertionError("the target is copied")

    monkeypatch.setattr(type(target), "__deepcopy__", refuse, raising=False)
    fit(drafter_task(target), tmp_path, max_steps=1)


@pytest.mark.parametrize("decay", ["1", "-0.5"])
def test_a_decay_that_averages_nothing_is_named(decay):
    """Catches an average that stays where it began, and one that diverges."""
    with pytest.raises(LanternError, match=rf"callbacks\.average\.decay={decay}"):
        check_numbers(composed("train", "+average=ema", f"callbacks.average.decay={decay}"))


def test_the_average_precedes_what_saves_checkpoints():
    """Catches a requeued job whose checkpoint lacks the last step's share; without the option there is no average."""
    assert next(iter(composed("train", "+average=ema").callbacks)) == "average"
    assert composed("train").callbacks.average is None


def test_the_average_is_where_the_weights_will_be():
    """Catches an average in main memory, to which every step would copy the weights of a GPU."""
    average, task = WeightAverage(DECAY), pl.LightningModule()
    task.network = torch.nn.Linear(2, 2)
    average.setup(SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("meta"))), task, "fit")
    assert {weight.device.type for weight in average._average_model.parameters()} == {"meta"}
