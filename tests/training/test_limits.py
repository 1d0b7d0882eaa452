"""Numbers that no training works with, and a loss that is not finite, are one sentence each."""

from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from support.paths import ROOT
from support.tiny_tasks import target_task
from torch import nn

from lantern.cli.composing import composed
from lantern.errors import LanternError
from lantern.training.run.checks import FiniteLoss, check_data, check_numbers, check_tables

TASKS = sorted(path.stem for path in (ROOT / "conf" / "task").glob("*.yaml"))


@pytest.mark.parametrize("setting", [
    "task.lr=-1", "task.lr=nan", "task.lr=inf", "task.muon_lr=-0.1", "task.weight_decay=-1",
    "recipe.feature_noise=-1", "batches.batch_size=0", "batches.batch_size=-8", "batches.validation_batch_size=0",
    "recipe.depth=0", "recipe.feature_weight=-1", "recipe.site_share=1.5", "distil.validation_depth=0",
    "trainer.max_steps=0", "trainer.max_steps=-2", "trainer.max_epochs=0",
    "trainer.val_check_interval=0", "trainer.log_every_n_steps=0", "callbacks.schedule.warmup_steps=-1",
    "data.num_train=0", "data.num_validation=0", "batches.splits.validation.num_images=0", "seed=-1",
    "seed=4294967296", "seed=1.5",
])  # fmt: skip
def test_a_number_out_of_range_is_named_with_its_setting(setting):
    """Catches tracebacks of an optimizer, a sampler or a seed, most of them after minutes of preparation."""
    name, value = setting.split("=")
    with pytest.raises(LanternError) as caught:
        check_numbers(composed(ROOT / "conf", "train", [setting]))
    said = str(caught.value).split(" ")[0]
    assert said.startswith(f"{name}=")
    assert float(said.split("=")[1]) == pytest.approx(float(value), nan_ok=True)


def test_no_time_at_all_and_a_codebook_without_latents_are_refused():
    with pytest.raises(LanternError, match=r"trainer\.max_time=00:00:00:00 trains nothing"):
        check_numbers(composed(ROOT / "conf", "train", ["trainer.max_time=00:00:00:00"]))
    with pytest.raises(LanternError, match=r"task\.quantize_from=0 is out of range"):
        check_numbers(composed(ROOT / "conf", "train", ["task=tokenizer", "task.quantize_from=0"]))


def test_batches_of_one_step_are_refused_because_they_would_have_equal_noise():
    """Noise is drawn by the optimizer's step: that of feature noise, captions dropped and chains would repeat."""
    said = r"^trainer\.accumulate_grad_batches=4: .* give a larger batches\.batch_size$"
    with pytest.raises(LanternError, match=said):
        check_numbers(composed(ROOT / "conf", "train", ["+trainer.accumulate_grad_batches=4"]))
    check_numbers(composed(ROOT / "conf", "train", ["+trainer.accumulate_grad_batches=1"]))


@pytest.mark.parametrize(("data", "key"), [("imagefolder", "folder"), ("webdataset", "shards"), ("parquet", "files")])
@pytest.mark.parametrize("task", ["drafter", "tokenizer"])
def test_data_that_is_not_named_is_asked_for_by_its_setting(data, key, task):
    """Catches folder=…, which no command knows, and an error after the target was loaded."""
    with pytest.raises(LanternError, match=rf"^data\.{key} has no value; give data\.{key}=…$"):
        check_data(composed(ROOT / "conf", "train", [f"data={data}", f"task={task}"]))
    check_data(composed(ROOT / "conf", "train", [f"data={data}", f"task={task}", f"data.{key}=here"]))


@pytest.mark.parametrize("task", TASKS)
def test_what_ships_is_in_range(task):
    check_numbers(composed(ROOT / "conf", "train", [f"task={task}"]))


class Diverging(pl.LightningModule):
    """A loss that is not finite from a step on."""

    def __init__(self, from_step: int, value: float) -> None:
        super().__init__()
        self.layer, self.from_step, self.value = nn.Linear(1, 1), from_step, value

    def training_step(self, batch, batch_idx: int):
        return self.layer(batch[0]).sum() * (self.value if self.global_step >= self.from_step else 1.0)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


@pytest.mark.parametrize(("from_step", "steps", "stops"), [(0, 30, 1), (4, 30, 11), (14, 15, 15)])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_the_training(value, from_step, steps, stops, tmp_path):
    """Catches weights of NaN that are exported after hours, also where the last step is the first bad one."""
    task = Diverging(from_step, value)
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(40, 1)))
    trainer = pl.Trainer(
        max_steps=steps, callbacks=[FiniteLoss()], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        accelerator="cpu", default_root_dir=tmp_path, enable_model_summary=False,
    )  # fmt: skip
    with pytest.raises(LanternError, match=rf"the training loss is \S+ at step {stops};"):
        trainer.fit(task, batches)


def test_weights_that_are_not_finite_are_not_exported_where_nothing_is_trained(weights):
    task = target_task(weights)
    end = FiniteLoss()
    end.on_fit_end(SimpleNamespace(global_step=9), task)
    task.transformer.norm.weight.data[0] = float("nan")
    with pytest.raises(LanternError, match="the weights are not finite at step 9; nothing is exported"):
        end.on_fit_end(SimpleNamespace(global_step=9), task)


GIVEN = [
    ("drafter_continuous", "features=on_the_fly"), ("target", "features=on_the_fly"), ("target", "features=disk"),
    ("tokenizer", "features=disk"), ("critic", "+captions=disk"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "given"), GIVEN)
def test_tables_of_drafters_are_refused_for_other_tasks(task, given):
    model = ["model=scenes_continuous"] if task == "drafter_continuous" else []
    with pytest.raises(LanternError, match=f"task={task} reads none; leave them out"):
        check_tables(composed(ROOT / "conf", "train", [f"task={task}", given, *model]))


@pytest.mark.parametrize(("task", "setting"), [
    ("critic", "task.lr=-1"), ("drafter_self", "samples.num_images=0"), ("drafter_self", "samples.batch_size=0"),
    ("drafter_continuous", "task.depth=0"), ("drafter_continuous", "task.validation_depth=0"),
    ("drafter", "batches.splits.validation.batch_size=0"),
])  # fmt: skip
def test_a_number_of_another_task_is_named_with_its_setting(task, setting):
    """Catches no images that mean an image for each caption."""
    with pytest.raises(LanternError, match=rf"^{setting} is "):
        check_numbers(composed(ROOT / "conf", "train", [f"task={task}", setting]))


@pytest.mark.parametrize("tau", [0, -1])
def test_a_race_without_temperature_is_refused(tau):
    """Catches a division by zero, whose loss is found not to be finite after the first step."""
    with pytest.raises(LanternError, match=rf"^recipe\.loss\.tau={tau} is out of range"):
        check_numbers(composed(ROOT / "conf", "train", ["recipe=race", f"recipe.loss.tau={tau}"]))
