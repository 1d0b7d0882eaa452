"""How long a training runs: limits that the user may not expect are told at its start, the one that ended it at its
end."""

import logging
from collections.abc import Mapping, Sequence

import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_only

from lantern.training.schedule import share_of

COUNTS = ("max_steps", "max_epochs")
log = logging.getLogger(__name__)


def tell_limits(limits: Mapping, overrides: Sequence[str], task: str) -> None:
    """Warns of a task's max_time beside steps or epochs that the user has given, and of a training without limits.
    limits: the trainer's settings."""
    given = [override.lstrip("+") for override in overrides]
    counted = [name for name in COUNTS if (limits.get(name) or -1) > 0]
    asked = [f"trainer.{name}={limits[name]}" for name in counted if _has(given, f"trainer.{name}")]
    if asked and limits["max_time"] is not None and not _has(given, "trainer.max_time"):
        log.warning(
            "%s ends after trainer.max_time=%s at the latest, which task=%s sets; give trainer.max_time=null for all "
            "of it", asked[0], limits["max_time"], task,
        )  # fmt: skip
    if not counted and limits["max_time"] is None:
        log.warning(
            "this training has no limit: its learning rate never decays, and passes of a recipe that start late never "
            "do; give trainer.max_steps=… or trainer.max_time=…"
        )


def _has(given: Sequence[str], key: str) -> bool:
    return any(each.startswith(f"{key}=") for each in given)


@rank_zero_only
def tell_end(trainer: pl.Trainer, limits: Mapping) -> None:
    """Prints the steps of a training that has ended, and the limit that was reached."""
    print(_reached(trainer, limits))


def _reached(trainer: pl.Trainer, limits: Mapping) -> str:
    steps = f"trained {trainer.global_step} steps"
    if share_of(trainer) < 1:
        return f"{steps}, stopped before its limits"
    if 0 < trainer.max_steps <= trainer.global_step:
        return f"{steps}: trainer.max_steps={trainer.max_steps} is reached"
    if trainer.max_epochs and 0 < trainer.max_epochs <= trainer.current_epoch:
        return f"{steps}: trainer.max_epochs={trainer.max_epochs} is reached"
    return f"{steps}: trainer.max_time={limits['max_time']} is reached"
