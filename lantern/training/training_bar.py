"""The progress bar of train.py: step, loss, share of the run's budget and time left."""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TextIO

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ProgressBar

from lantern.runtime.progress_line import ProgressLine
from lantern.training.schedule import share_of


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
