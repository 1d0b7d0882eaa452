"""An exponential moving average of the trained weights, which is validated and exported in their place."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EMAWeightAveraging
from torch import nn
from torch.optim.swa_utils import AveragedModel


class WeightAverage(EMAWeightAveraging):
    """Lightning's callback on a task's trained modules alone: it would copy the whole task, the frozen target
    included. Checkpoints hold the average as their state_dict and the trained weights beside it."""

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Not yet: a run that only exports, from a checkpoint behind its limits, has no such end."""

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_end(trainer, pl_module)

    def __init__(self, decay: float) -> None:
        super().__init__(decay=decay)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        trained = nn.Module()
        for name, part in pl_module.named_children():
            trained.add_module(name, part)
        settings: dict[str, Any] = self._kwargs
        device = trainer.strategy.root_device  # where the task itself will be moved
        self._average_model = AveragedModel(trained, device, use_buffers=self._use_buffers, **settings)
