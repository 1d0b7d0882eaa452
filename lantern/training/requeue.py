"""Training in a job that is put back into the queue: the checkpoint is saved at the end of the step, then the job goes.
A signal may arrive in the middle of an optimizer's step, whose weights are those of no step."""

import signal
import sys
from pathlib import Path
from types import FrameType

import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_only

from lantern.training.latest_checkpoint import is_validation_due

REQUEUE = (signal.SIGUSR1, signal.SIGUSR2)  # of Lightning and of submitit, before the time limit or on preemption


@rank_zero_only
def remove_surplus(folder: Path) -> None:
    """Removes what Lightning saves in its folder beside ours before it requeues a job: each time one more checkpoint,
    which it reads only where no other is given."""
    for path in folder.glob("hpc_ckpt_*.ckpt"):
        path.unlink(missing_ok=True)


class SaveBeforeRequeue(pl.Callback):
    """Delays the handlers of REQUEUE that this process has until the end of the step, where a validation follows until
    that of the next one, and saves `path` before them. In such a job SIGTERM, which precedes Slurm's kill, saves and
    ends the process as well."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._handlers = {}
        self._received: int | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        found = {number: signal.getsignal(number) for number in REQUEUE}
        self._handlers = {number: handler for number, handler in found.items() if callable(handler)}
        if self._handlers:
            self._handlers[signal.SIGTERM] = lambda number, frame: sys.exit(128 + number)
        for number in self._handlers:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received = number

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs, batch, batch_idx: int
    ) -> None:
        if not self._handlers:
            return
        number = trainer.strategy.broadcast(self._received)  # processes receive it at different steps
        if number is None or is_validation_due(trainer):
            return
        trainer.save_checkpoint(self.path, weights_only=False)
        self._handlers[number](number, None)
        while True:  # handlers return where another process requeues the job, whose kill ends this one
            signal.pause()
