"""Signals to a training: SIGTERM and Ctrl-C end it promptly, and a job that is put back into the queue is saved first.

Lightning acts on SIGTERM only when the next batch ends. Before the first step, while images are encoded and sampled,
that may be hours later. During a step the weights belong to no step, so signals wait for its end.
"""

import signal
import sys
from collections.abc import Callable
from types import FrameType

import pytorch_lightning as pl

from lantern.training.run.lightning_internals import is_validation_due
from lantern.training.run.run_state import LatestCheckpoint

STATUS = 128 + signal.SIGTERM  # exit status of a process that the signal ends
REQUEUE = (signal.SIGUSR1, signal.SIGUSR2)  # of Lightning and of submitit, before the time limit or on preemption


class Interrupts(pl.Callback):
    """Saves the step in which a signal arrives, then ends the process, or has its job put back into the queue. Steps
    before a validation are not saved: Lightning would count that validation as done. A second Ctrl-C ends at once."""

    def __init__(self, folder: str = "the same folder") -> None:
        """folder: what to start again with, hydra.run.dir=… or hydra.sweep.dir=… of a command."""
        self._again = f"started again with {folder} it goes on"
        self._trainer: pl.Trainer | None = None  # while it trains
        self._latest: LatestCheckpoint | None = None
        self._received: int | None = None  # while a batch or a validation runs
        self._requeue: dict[int, Callable[[int, FrameType | None], object]] = {}  # handlers of a job in a queue

    def listen(self) -> None:
        """From now on, SIGTERM ends the process. Lightning's own handler calls this one."""
        signal.signal(signal.SIGTERM, self._note)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._trainer = trainer
        self._latest = next((each for each in trainer.callbacks if isinstance(each, LatestCheckpoint)), None)
        handlers = {number: signal.getsignal(number) for number in REQUEUE}
        self._requeue = {number: handler for number, handler in handlers.items() if callable(handler)}
        if self._requeue:  # Slurm sends SIGTERM before it kills
            self._requeue[signal.SIGTERM] = lambda number, frame: sys.exit(STATUS)
        for number in self._requeue:
            signal.signal(number, self._note)
        # several processes may receive it at different steps; a shell's background job ignores SIGINT
        if trainer.world_size == 1 and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)

    def on_train_batch_end(self, trainer: pl.Trainer, *others: object) -> None:
        # processes receive it at different steps
        number = trainer.strategy.broadcast(self._received) if self._requeue else self._received
        if number is None:
            return
        is_last = is_validation_due(trainer)
        if self._latest and not is_last and (trainer.world_size == 1 or number in self._requeue):
            self._latest.save(trainer)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if number in self._requeue and not is_last:
            self._requeue[number](number, None)
            while True:  # the handler returns if another process requeues the job; that kills this one
                signal.pause()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        was_training = self._trainer is not None
        self._stop()
        if not isinstance(exception, SystemExit | KeyboardInterrupt):
            return
        if not was_training:  # but making tables; of SIGTERM, _note has told
            if isinstance(exception, KeyboardInterrupt) and trainer.is_global_zero:
                _say("ended by Ctrl-C", self._again)
            return
        if isinstance(exception, SystemExit):  # Lightning's, without a status
            exception.code = STATUS
        if trainer.is_global_zero:
            name = "Ctrl-C" if isinstance(exception, KeyboardInterrupt) else "SIGTERM"
            _say(f"ended by {name} after step {trainer.global_step}", self._remedy())

    def _remedy(self) -> str:
        """How to go on from what is saved."""
        if self._latest is None or not self._latest.path.is_file():
            return "no checkpoint is saved yet: started again it begins anew, on the tables that are made"
        exported = "; with ckpt_path=last trainer.max_steps=1 beside it, it exports what there is"
        return self._again + exported * ("hydra.run.dir=" in self._again)  # but no single point of a sweep

    def _stop(self) -> None:
        self._trainer = None
        if signal.getsignal(signal.SIGINT) == self._note:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and not self._trainer:
            _say("ended by SIGTERM", self._again)
            raise SystemExit(STATUS)
        if number == signal.SIGINT:
            if self._received is not None:
                raise KeyboardInterrupt
            work = "validation" if self._trainer and self._trainer.validating else "step"
            print(f"\nends after this {work}; Ctrl-C again ends at once", file=sys.stderr)
        self._received = number  # Lightning ends it after this batch


def _say(what: str, remedy: str) -> None:
    print(f"error: {what}; {remedy}", file=sys.stderr)
