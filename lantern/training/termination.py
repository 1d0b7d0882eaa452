"""SIGTERM ends a training promptly. Lightning only notes it until the next batch ends, which before the first step may
be hours away: images are encoded and sampled first. What is finished of those is on disk."""

import os
import signal
import sys
from types import FrameType

import pytorch_lightning as pl

STATUS = 128 + signal.SIGTERM  # as of a process that the signal ends


class PromptEnd(pl.Callback):
    """Ends the process at the signal until training begins, and gives the exit a status and a sentence after that."""

    def __init__(self) -> None:
        self._trains, self._process = False, os.getpid()

    def listen(self) -> None:
        """From now on. Lightning, which sets a handler of its own, calls this one after it."""
        signal.signal(signal.SIGTERM, self._end)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._trains = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._trains = False

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        if isinstance(exception, SystemExit) and self._trains:  # Lightning's, without a status
            exception.code = STATUS
            _say(f"ended by SIGTERM after step {trainer.global_step}")

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self._trains:
            return  # Lightning ends it after this batch
        if os.getpid() == self._process:  # and no helper that encodes images
            _say("ended by SIGTERM")
        raise SystemExit(STATUS)


def _say(what: str) -> None:
    print(f"error: {what}; started again with the same hydra.run.dir=… it goes on", file=sys.stderr)
