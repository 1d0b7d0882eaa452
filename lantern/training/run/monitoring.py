"""What a training shows and logs: a bar, Weights & Biases, and whether its loss is finite."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from math import ceil, inf, isfinite
from pathlib import Path
from time import monotonic
from typing import Any, TextIO

import pytorch_lightning as pl
import wandb
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from pytorch_lightning.callbacks import ProgressBar
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.loggers.logger import DummyExperiment
from torch import Tensor

from lantern.cli.sweep_callback import Points
from lantern.errors import LanternError
from lantern.reporting import wandb_runs
from lantern.runtime.progress_line import ProgressLine
from lantern.training.run.budget import Budget, compares_origins, share_of, steps_left

LOSS_EVERY = 10  # steps between checks of the loss; each check waits for the device


class TrainingBar(ProgressBar):
    """Replaces Lightning's bars, which count epochs and know neither a time limit nor the validations to come. The time
    left is that of the steps, the validations and the comparison to come, by times in this process."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = monotonic, last_table: str = "-train"
    ) -> None:  # fmt: skip
        """last_table: how the title of the table ends that is made last before the first step."""
        super().__init__()
        self._stream, self._clock, self._last_table, self._begun = stream, clock, last_table, False
        self._line: ProgressLine | None = None  # of the first process, from the start of training to its end
        self._first: tuple[float, int] | None = None  # time and step behind the first step, which is slower
        self._validating = self._validated_s = self._validation_s = 0.0  # since when; of all; of the last one
        self.comparison_s = 0.0  # foreseen, of training with held-out images at the end

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if Points.here and trainer.is_global_zero:
            Points.here.ahead = partial(self._ahead, trainer)

    def _ahead(self, trainer: pl.Trainer, title: str, left_s: float | None) -> float | None:
        """Seconds until the last validation has ended, by those of what is under way; None where they are not known."""
        if self._begun:
            return left_s
        table_s = left_s if title.endswith(self._last_table) else None
        timers, ending_s = (c for c in trainer.callbacks if isinstance(c, Budget)), self.comparison_s
        return next((timer.foreseen_s(table_s, self._validation_s + ending_s) for timer in timers), None)

    def disable(self) -> None:
        """Called in all processes but the first, in which on_train_start makes no line."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._begun = not trainer.sanity_checking
        if trainer.is_global_zero:
            self._line = ProgressLine("training", self._stream, self._clock)
            self._show(self._line, trainer, f"step {trainer.global_step}", None)

    on_sanity_check_start = on_train_start  # whose tables are made behind it

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: object, *_: Any) -> None:
        if self._line is None:
            return
        self._first = self._first or (self._clock(), trainer.global_step)
        if not self._line.is_due:
            return
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        words = f"step {trainer.global_step}" + ("" if loss is None else f", loss {float(loss):.4g}")
        self._show(self._line, trainer, words, self._left_s(trainer, self._clock()))

    def _show(self, line: ProgressLine, trainer: pl.Trainer, words: str, left_s: float | None) -> None:
        line.show(min(share_of(trainer), 0.99 if left_s else 1.0), words, left_s)  # a validation may follow all steps

    def _left_s(self, trainer: pl.Trainer, now: float) -> float | None:
        """Seconds of the steps and validations to come or due; None without a limit, or before a second step."""
        since, first = self._first or (0.0, 0)
        if trainer.global_step <= first:
            return None
        step_s = (now - since - self._validated_s) / (trainer.global_step - first)
        every = float(trainer.val_check_batch or inf)
        if (steps := steps_left(trainer, step_s, self._validation_s / every)) is None:
            return None
        count = ceil((trainer.global_step + steps) / every) - (trainer.global_step - 1) // every  # the last at the end
        ending_s = count * self._validation_s + self.comparison_s
        return steps * step_s + ending_s - (self._clock() - now)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._validating = self._clock()

    def on_validation_batch_start(self, trainer: pl.Trainer, task: object, batch: object, index: int, *_: int) -> None:
        if self._line is not None:
            self._foresee(trainer, index)
            words = f"validation after step {trainer.global_step}, batch {index + 1} of {_batches(trainer)}"
            left_s = self._left_s(trainer, self._validating) if self._validation_s else None
            self._show(self._line, trainer, words, left_s)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._foresee(trainer, _batches(trainer))
        if not trainer.sanity_checking:
            self._validated_s += self._validation_s

    def _foresee(self, trainer: pl.Trainer, done: int) -> None:
        """All batches of a validation take the time of those that are done."""
        if done:
            self._validation_s = (self._clock() - self._validating) / done * sum(trainer.num_val_batches)
            if compares_origins(trainer):  # an image of either kind takes about half of a validated one
                images = trainer.lightning_module.compared / len(trainer.val_dataloaders.dataset)
                self.comparison_s = images * self._validation_s

    def on_train_end(self, *_: object) -> None:
        if self._line is not None:
            self._line.close()

    on_sanity_check_end = on_exception = on_train_end


def _batches(trainer: pl.Trainer) -> int:
    """Of the validation that runs."""
    return sum(trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches)


class FiniteLoss(pl.Callback):
    def __init__(self) -> None:
        self._last: Tensor | None = None

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self._last = outputs["loss"]
        if trainer.global_step % LOSS_EVERY == 1:
            self._check(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._check(trainer)

    def _check(self, trainer: pl.Trainer) -> None:
        if self._last is not None and not isfinite(loss := self._last.item()):
            raise LanternError(
                f"the training loss is {loss} at step {trainer.global_step}; nothing is exported, lower the learning "
                "rates (task.lr=…) and start in another folder"
            )


class TolerantWandbLogger(WandbLogger):
    """Lightning's logger, silent after its first failure: metrics.csv has the same data, and training must go on."""

    def __init__(self, model: str, start_from: str | None, **settings: Any) -> None:
        """model: the model that is trained, or whose drafter is trained; start_from: weights to train further."""
        super().__init__(**settings)
        self._wandb_init.pop("anonymous", None)  # wandb warns of it, and Lightning gives it unasked
        self.guard, self.folders = wandb_runs.Guard("metrics.csv continues"), [Path(settings["save_dir"])]
        self._model, self._start_from = model, start_from

    @property
    def experiment(self) -> Any:  # which Lightning asks for before the first step
        return self.guard(WandbLogger.experiment.fget, self) or DummyExperiment()

    def log_metrics(self, *given: Any, **named: Any) -> None:
        self.guard(super().log_metrics, *given, **named)

    def log_hyperparams(self, *given: Any, **named: Any) -> None:
        self.guard(super().log_hyperparams, *given, **named)

    def finalize(self, status: str) -> None:
        self.guard(super().finalize, status)

    def log_weights(self, folder: Path, kind: str, exported: Mapping[str, Any]) -> None:
        """Logs exported weights as a version of the collection that evaluations name, start_from's as the run's input,
        the exported step's figures as its summary. Ends the run. kind: such as drafter; exported: of write_exported."""

        def log() -> None:
            self.experiment.summary.update({**exported["figures"], "exported_step": exported["step"]})
            artifact = wandb_runs.weights_artifact(folder, kind, self._model)
            if self._start_from:
                wandb_runs.name_input(self.experiment, self._start_from, kind, self._model)
            self.experiment.log_artifact(artifact, aliases=[artifact.metadata["hash"]])
            wandb.finish()  # at the program's end nobody would see what takes so long

        with closing(ProgressLine("training")) as line:
            line.show(1.0, "sending it to Weights & Biases", None)
            self.guard(log)
        wandb_runs.tell_offline(self.folders, self.version)


def wandb_logger(
    project: str, save_dir: str, name: str, tags: Sequence[str], group: str | None = None,
    checkpoint: str | None = None, entity: str | None = None, model: str = "llamagen", start_from: str | None = None,
) -> TolerantWandbLogger:  # fmt: skip
    """Offline without an API key, unless WANDB_MODE is set. `checkpoint` (ckpt_path) continues the W&B run of its
    folder, if that has one and its name."""
    is_sweep = HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
    if is_sweep and "WANDB_SWEEP_ID" in os.environ:  # W&B would log all points as the one run that its agent has made
        raise LanternError("an agent of Weights & Biases trains one point a run; leave -m out, or give logger=csv")
    wandb_runs.Guard("its own folder has all")(wandb.finish)  # else this would log to a sweep's previous point
    resumed = Path(checkpoint).parent.parent if checkpoint else Path(save_dir)
    key = wandb_runs.folder_id(resumed if (resumed / wandb_runs.FOLDER_ID_FILE).is_file() else Path(save_dir))
    where = "/".join(Path(save_dir).parts[-2 if is_sweep else -1 :])
    tags, mode = wandb_runs.clean_tags(tags), wandb_runs.wandb_mode()
    logger = TolerantWandbLogger(
        model, start_from, project=project, entity=entity, group=group, name=f"{name} {where}", tags=tags,
        job_type="train", id=re.sub(r"[^\w.-]+", "-", f"{name}-{key}"), resume="allow", mode=mode, save_dir=save_dir,
        settings=wandb_runs.quiet_settings(mode),
    )  # fmt: skip
    logger.folders = list(dict.fromkeys([resumed, *logger.folders]))
    return logger
