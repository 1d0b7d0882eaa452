from itertools import chain

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LambdaCallback, ModelCheckpoint
from pytorch_lightning.demos.boring_classes import BoringModel

from lantern.training.data_module import SeededBatches, TrainingData, batch_uniform


def test_each_epoch_shows_every_item_once_in_a_new_order():
    loader = SeededBatches(12, 4, 0)
    batches = [*loader, *loader]
    epochs = [[*chain(*batches[:3])], [*chain(*batches[3:])]]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(12))
    assert epochs[0] != epochs[1]


def test_a_number_of_images_is_evenly_spaced_and_the_same_in_every_epoch():
    """Catches one class of a class folder, its first images."""
    data = TrainingData(Numbers(), 2, 0, num_images=4)
    loader = data.train_dataloader()
    for _ in range(3):
        assert sorted(int(token) for batch in loader for token in batch["tokens"]) == [0, 2, 4, 6]
    assert [int(item["tokens"]) for item in data.seen_and_unseen(2)[0]] == [0, 4]


class Seeing(BoringModel):
    """Records the batches it is trained on."""

    def training_step(self, batch: dict, batch_idx: int) -> torch.Tensor:
        self.seen.append(batch["tokens"][:, 0].tolist())
        return self.layer(torch.ones(1, 32)).sum()


class Numbers:
    """Eight items, numbered."""

    def split(self, name: str) -> list[dict]:
        return [{"tokens": torch.tensor([number])} for number in range(8)]


def seen_until(step: int, folder, ckpt_path: str | None = None) -> list[list[int]]:
    """The batches of a run limited by time alone, which a checkpoint of its last step ends."""

    def stop(trainer: pl.Trainer, *_: object) -> None:
        trainer.should_stop = trainer.global_step >= step

    (module := Seeing()).seen = []
    trainer = pl.Trainer(
        default_root_dir=folder, accelerator="cpu", max_steps=-1, max_epochs=-1, max_time="00:01:00:00", logger=False,
        callbacks=[ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1, save_last=False),
                   LambdaCallback(on_train_batch_end=stop)],
        enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(module, TrainingData(Numbers(), batch_size=2, seed=0), ckpt_path=ckpt_path, weights_only=True)
    return module.seen


def test_a_run_limited_by_time_keeps_its_place_through_two_restarts(tmp_path):
    """Catches a place that Lightning forgets: it takes a run without max_steps, resumed at the end of an epoch before,
    for one at the start of an epoch."""
    whole = seen_until(11, tmp_path)
    for second in range(5, 9):  # the first restart is at the end of an epoch of four batches
        parts = seen_until(4, tmp_path / "a") + seen_until(second, tmp_path / "a", str(tmp_path / "a" / "step=4.ckpt"))
        parts += seen_until(11, tmp_path / "a", str(tmp_path / "a" / f"step={second}.ckpt"))
        assert parts == whole


def test_an_image_draws_the_same_numbers_however_many_processes_share_the_step():
    """Image n of a step is image n // world of process n % world: as SeededBatches assigns them."""
    whole = batch_uniform(6, (3, 2), 5, 7, 0, 1, "cpu")
    for world in (2, 3):
        parts = [batch_uniform(6 // world, (3, 2), 5, 7, rank, world, "cpu") for rank in range(world)]
        assert torch.equal(torch.stack(parts, dim=1).flatten(0, 1), whole)
    assert len(whole.unique()) == whole.numel()
    assert not torch.equal(whole, batch_uniform(6, (3, 2), 5, 8, 0, 1, "cpu"))
    assert not torch.equal(whole, batch_uniform(6, (3, 2), 6, 7, 0, 1, "cpu"))
