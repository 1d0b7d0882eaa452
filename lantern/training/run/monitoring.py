"""What a training shows and logs: a bar, the time of its steps, Weights & Biases, and whether its loss is finite."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from math import isfinite
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, TextIO

import pytorch_lightning as pl
import wandb
from pytorch_lightning.callbacks import ProgressBar
from pytorch_lightning.loggers import WandbLogger
from torch import Tensor

from lantern.errors import LanternError
from lantern.reporting.wandb_runs import KEY_FILE, folder_key, wandb_mode, weights_artifact
from lantern.runtime.cores import CpuContention
from lantern.runtime.progress_line import ProgressLine
from lantern.training.run.lightning_internals import without_anonymous
from lantern.training.run.schedule import share_of

LOSS_EVERY = 10  # steps between two looks at the loss, each of which waits for the device
REMEDY = "nothing is exported, lower the learning rates (task.lr=…) and start in another folder"
TRAINED, STEPS, OTHERS = "time/training_s", "time/steps", "time/other_cores"
log = logging.getLogger(__name__)


class TrainingBar(ProgressBar):
    """Replaces Lightning's bar, which counts epochs and knows no time limit. The time left follows from the share of
    the budget that this process has used, validation included."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._stream, self._clock = stream, clock
        self._line: ProgressLine | None = None  # of the first process, from the start of training to its end
        self._began: tuple[float, float] = (0.0, 0.0)  # time and share at the start, above 0 for a resumed run

    def disable(self) -> None:
        """Called in all processes but the first, in which on_train_start makes no line."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            self._line = ProgressLine("training", self._stream, self._clock)
            self._began = self._clock(), share_of(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs, batch, batch_idx: int
    ) -> None:
        if self._line is None or not self._line.is_due:
            return
        share = share_of(trainer)
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        words = f"step {trainer.global_step}" + ("" if loss is None else f", loss {float(loss):.4g}")
        self._line.show(share, words, self._left_s(share))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._close()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._close()

    def _left_s(self, share: float) -> float | None:
        time, before = self._began
        used = share - before
        return (self._clock() - time) * (1 - share) / used if used > 0 else None

    def _close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


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


class FiniteLoss(pl.Callback):
    """Raises LanternError once the loss is NaN or infinite, or at the end a weight."""

    def __init__(self) -> None:
        self._last: Tensor | None = None

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs, batch, batch_idx: int
    ) -> None:
        self._last = outputs["loss"]
        if trainer.global_step % LOSS_EVERY == 1:
            self._check(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._check(trainer)
        trained = (weight for weight in pl_module.parameters() if weight.requires_grad)
        if not all(weight.isfinite().all() for weight in trained):  # where a checkpoint left nothing to train
            raise LanternError(f"the weights are not finite at step {trainer.global_step}; {REMEDY}")

    def _check(self, trainer: pl.Trainer) -> None:
        if self._last is not None and not isfinite(loss := self._last.item()):
            raise LanternError(f"the training loss is {loss} at step {trainer.global_step}; {REMEDY}")


def _or_warn(method: Callable[..., None]) -> Callable[..., None]:
    """Turns any error of `method` into one warning: metrics.csv has the same data, and training must go on."""

    @wraps(method)
    def guarded(self: "TolerantWandbLogger", *args: Any, **kwargs: Any) -> None:
        if self.has_failed:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.has_failed = True
            log.warning("Weights & Biases logging stopped (%s); metrics.csv continues", error)

    return guarded


class TolerantWandbLogger(WandbLogger):
    """Lightning's logger, silent after its first failure."""

    has_failed = False

    @_or_warn
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        super().log_metrics(metrics, step)

    @_or_warn
    def log_hyperparams(self, params: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super().log_hyperparams(params, *args, **kwargs)

    @_or_warn
    def save(self) -> None:
        super().save()

    @_or_warn
    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        super().after_save_checkpoint(checkpoint_callback)

    @_or_warn
    def log_weights(self, folder: Path, kind: str) -> None:
        """Logs exported weights as an artifact named by their hash, the name that evaluations use."""
        self.experiment.log_artifact(weights_artifact(folder, kind))

    @_or_warn
    def finalize(self, status: str) -> None:
        super().finalize(status)


def wandb_logger(
    project: str, save_dir: str, name: str, tags: Sequence[str], group: str | None = None, checkpoint: str | None = None
) -> TolerantWandbLogger:
    """Offline without an API key, unless WANDB_MODE is set. `checkpoint` (ckpt_path) continues the W&B run of its
    folder, if that has one."""
    wandb.finish()  # a sweep's point before: Lightning would log to its run
    resumed = Path(checkpoint).parent.parent if checkpoint else Path(save_dir)
    key = folder_key(resumed if (resumed / KEY_FILE).is_file() else Path(save_dir))
    quiet = wandb.Settings(silent=True, console="off")  # training's own output is all that the terminal shows
    settings = {"group": group, "job_type": "train", "mode": wandb_mode(), "id": f"{name}-{key}", "resume": "allow"}
    return without_anonymous(
        TolerantWandbLogger(project=project, save_dir=save_dir, name=name, tags=list(tags), settings=quiet, **settings)
    )
