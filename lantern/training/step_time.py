"""Time of training steps without validation: logged with each validation, beside the cores that other processes used
meanwhile, and as the limit of a training."""

from time import perf_counter
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer

from lantern.runtime.cpu_contention import CpuContention

TRAINED, STEPS, OTHERS = "time/training_s", "time/steps", "time/other_cores"


class StepTime(pl.Callback):
    """Logs TRAINED, STEPS and OTHERS. A resumed run counts on from its checkpoint."""

    def __init__(self) -> None:
        self._spent = self._disturbed = 0.0  # seconds of steps; seconds of cores that others used during these
        self._running: tuple[float, CpuContention] | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._running = perf_counter(), CpuContention()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._spent, self._disturbed = self._totals()
        self._running = None

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        others = self._disturbed / self._spent if self._spent else 0.0
        measured = {TRAINED: self._spent, STEPS: float(trainer.global_step), OTHERS: others}
        pl_module.log_dict(measured, sync_dist=True)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._running = perf_counter(), CpuContention()

    def state_dict(self) -> dict[str, Any]:
        spent, disturbed = self._totals()
        return {"spent": spent, "disturbed": disturbed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._spent, self._disturbed = state_dict["spent"], state_dict["disturbed"]

    def _totals(self) -> tuple[float, float]:
        if self._running is None:
            return self._spent, self._disturbed
        began, contention = self._running
        seconds = perf_counter() - began
        return self._spent + seconds, self._disturbed + seconds * (contention.cores() or 0.0)


class StepTimer(Timer):
    """Lightning's time limit, without its validations: more steps in the same time would have more of them. A resumed
    run counts on from its checkpoint."""

    def __init__(self, duration: str | None) -> None:
        """duration: DD:HH:MM:SS; None for no limit."""
        super().__init__(duration)
        self._validated = 0.0  # seconds, since this process began to train

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        self._validated += self.time_elapsed("validate")

    def time_elapsed(self, stage: str = "train") -> float:
        """Seconds of a stage, as Lightning's; of training without validations, except for one that is running."""
        return super().time_elapsed(stage) - (self._validated if stage == "train" else 0.0)
