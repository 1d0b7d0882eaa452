"""The cores of this machine, divided among the points or shards that a launcher starts side by side."""

import os

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from lantern.cli.sweep_callback import number_of_points
from lantern.runtime.cores import usable_cores

THREADS = "OMP_NUM_THREADS"


class DividedCores(Callback):
    """Sets the number of threads of each process, unless the user has: with all cores for each, they wait for one
    another."""

    def __init__(self, at_once: int | None = None) -> None:
        """at_once: processes at a time; None: as many as there are points."""
        self._at_once = at_once

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        """Sets the variable in this process, whose environment the others inherit."""
        if THREADS in os.environ:
            return
        points = number_of_points(config)
        cores = len(usable_cores())
        at_once = min(count for count in (self._at_once, points, cores) if count and count > 0)
        os.environ[THREADS] = str(cores // at_once)
