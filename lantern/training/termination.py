"""SIGTERM and Ctrl-C end a training promptly. Lightning only notes SIGTERM until the next batch ends, which before the
first step may be hours away: images are encoded and sampled first. What is finished of those is on disk."""

import os
import signal
import sys
from types import FrameType

import pytorch_lightning as pl

from lantern.training.latest_checkpoint import LatestCheckpoint, is_validation_due

STATUS = 128 + signal.SIGTERM  # as of a process that the signal ends


class PromptEnd(pl.Callback):
    """Ends the process at SIGTERM until training begins. After that it saves the step in which a process that trains
    alone is told to end, and gives the exit a sentence and, of SIGTERM, a status. A second Ctrl-C ends at once."""

    def __init__(self) -> None:
        self._trains, self._process = False, os.getpid()
        self._received: int | None = None  # while a batch or a validation runs

    def listen(self) -> None:
        """From now on. Lightning, which sets a handler of its own, calls this one after it."""
        signal.signal(signal.SIGTERM, self._end)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._trains = True
        # of several processes, each may get the signal at another step; ignored means in the background of a shell
        if trainer.world_size == 1 and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs, batch, batch_idx: int
    ) -> None:
        if self._received is None:
            return
        if (latest := _latest(trainer)) and trainer.world_size == 1 and not is_validation_due(trainer):
            latest.save(trainer)
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._ends()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        trained, name = self._trains, "Ctrl-C" if isinstance(exception, KeyboardInterrupt) else "SIGTERM"
        self._ends()
        if not trained or not isinstance(exception, SystemExit | KeyboardInterrupt):
            return
        if isinstance(exception, SystemExit):  # Lightning's, without a status
            exception.code = STATUS
        if trainer.is_global_zero:
            _say(f"ended by {name} after step {trainer.global_step}", _remedy(trainer))

    def _ends(self) -> None:
        self._trains = False
        if signal.getsignal(signal.SIGINT) == self._note:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            raise KeyboardInterrupt
        self._received = number
        print("ends after this step; Ctrl-C again ends at once", file=sys.stderr)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self._trains:
            self._received = number
            return  # Lightning ends it after this batch
        if os.getpid() == self._process:  # and no helper that encodes images
            _say("ended by SIGTERM", "started again with the same hydra.run.dir=… it goes on")
        raise SystemExit(STATUS)


def _latest(trainer: pl.Trainer) -> LatestCheckpoint | None:
    return next((each for each in trainer.callbacks if isinstance(each, LatestCheckpoint)), None)


def _remedy(trainer: pl.Trainer) -> str:
    """How to go on from what is saved."""
    if (latest := _latest(trainer)) is None or not latest.path.is_file():
        return "no checkpoint is saved yet: started again it begins anew, on the tables that are made"
    now = f"ckpt_path=last hydra.run.dir={trainer.default_root_dir} trainer.max_time=00:00:00:01"
    return f"started again with the same hydra.run.dir=… it goes on; with {now} it exports what there is"


def _say(what: str, remedy: str) -> None:
    print(f"error: {what}; {remedy}", file=sys.stderr)
