"""The command `train`: what train.py and the installed lantern-train run. What needs torch is imported
inside, so that --help and a mistyped setting are answered at once."""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern.cli.error_messages import command, starting_line
from lantern.cli.settings import check_numbers, figure_of
from lantern.errors import LanternError, check_whole, ctrl_c, first_line
from lantern.runtime.files import alone_in
from lantern.runtime.overrides import config_dir, override
from lantern.runtime.progress_line import ProgressLine

if TYPE_CHECKING:
    import pytorch_lightning as pl
    import torch

OmegaConf.register_new_resolver("basename", os.path.basename, replace=True)  # by it a sweep's folder names W&B's group
PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal at the parent's end


@command("train")
def train(cfg: DictConfig) -> float | None:
    """Trains or resumes one part and exports it. Returns `optimized_metric` of the exported step, for a sweeper."""
    end_with_torchrun()
    run = HydraConfig.get()
    starting = starting_line()
    from lantern.drafters.export import exported_step
    from lantern.training.run.interrupts import Interrupts

    starting.close()
    ctrl_c(ends_at_once=False)
    folder, is_sweep = Path(run.runtime.output_dir), run.mode == RunMode.MULTIRUN
    kept = override("hydra.sweep.dir", Path(run.sweep.dir).resolve()) if is_sweep else override("hydra.run.dir", folder)
    (interrupts := Interrupts(kept)).listen()
    carry_out(cfg, folder, interrupts, run.overrides.task, is_sweep, config_dir(run.runtime))
    return figure_of(exported_step(folder / cfg.task_name).get("figures", {}), cfg.optimized_metric)


def carry_out(
    cfg: DictConfig, folder: Path, interrupts: "pl.Callback", overrides: Sequence[str] | None = None,
    is_sweep: bool = False, config_dir: Sequence[str] = (),
) -> None:  # fmt: skip
    """Trains and exports in a folder, which may hold the beginning of this training, or all of it. overrides,
    config_dir: of the command; None: there is none, and so no command is printed that comes next."""
    from pytorch_lightning import seed_everything
    from pytorch_lightning.utilities import rank_zero_only

    from lantern.training.run import fit, processes, run_state

    fit.silence_warnings()
    named = run_state.named_checkpoint(cfg.ckpt_path, folder)
    if ignored := [given for given in overrides or () if given.startswith("drafter.")]:
        raise LanternError(f"{ignored[0]} is for evaluate.py; for a start give task.start_from=…, for sizes distil.…")
    config = OmegaConf.to_container(cfg, resolve=True)  # before _place: devices may differ when a run is resumed
    check_whole("", 0, 2**32 - 1, seed=cfg.seed)
    check_numbers(config)
    if (named is None or is_sweep) and run_state.is_finished(folder, config):
        return fit.print_next(folder / cfg.task_name, overrides, config_dir)
    with nullcontext() if rank_zero_only.rank else alone_in(folder):  # the processes of one training share it
        run_state.keep_old_metrics(folder)
        trainer = _trainer(cfg, interrupts)
        processes.check_processes(trainer, is_sweep)
        _place(cfg, trainer.strategy.root_device)
        with closing(ProgressLine("starting")) as starting:
            starting.show(0.0, "loading weights", None)
            if cfg.get("target"):
                instantiate(cfg.target)  # held from here on: not every point of a sweep draws numbers to load it
            seed_everything(cfg.seed, workers=True, verbose=False)
            task, batches = instantiate(cfg.task), instantiate(cfg.batches)
            run_state.check_captions(cfg, task, batches)
            target = {"target": task.target.weights_hash} if hasattr(task, "target") else {}
            weights = run_state.named_weights(config) | target | run_state.data_hash(cfg, batches)
            starting.close()  # what follows may print
            checkpoint = run_state.checkpoint_to_resume(folder, config, named, weights)
            trainer.callbacks.insert(0, run_state.RunFolder(folder, config, cfg.device, weights, checkpoint))
            starting.show(0.0, "starting loggers", None)
            for logger in trainer.loggers:
                _ = logger.experiment  # which Lightning would start in silence
        fit.fit(trainer, task, batches, checkpoint)
        fit.export(task, trainer, folder / cfg.task_name)
        fit.print_next(folder / cfg.task_name, overrides, config_dir)


def _trainer(cfg: DictConfig, interrupts: "pl.Callback") -> "pl.Trainer":
    from lantern.training.run.monitoring import FiniteLoss

    callbacks = [callback for callback in instantiate(cfg.callbacks).values() if callback]
    return instantiate(cfg.trainer, callbacks=[*callbacks, FiniteLoss(), interrupts], logger=_loggers(cfg.logger))


def _loggers(config: DictConfig) -> list["pl.loggers.Logger"]:
    """The chosen loggers; a sweep may also set options of others. LanternError if a chosen one's package is missing."""
    try:
        return [instantiate(logger) for logger in config.values() if logger and "_target_" in logger]
    except InstantiationException as error:
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        raise LanternError(f"{first_line(error.__cause__)}; or give logger=csv") from error


def end_with_torchrun() -> None:
    """Has Linux kill this process with its torchrun: else it would keep training in the folder of the restarted run."""
    if sys.platform == "linux" and "TORCHELASTIC_RUN_ID" in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _place(cfg: DictConfig, device: "torch.device") -> None:
    """Sets the frozen target's device to the one that trains."""
    if cfg.device in ("auto", device.type):
        cfg.device = str(device)  # where Lightning puts the rest
    elif cfg.device != str(device):
        raise LanternError(f"device={cfg.device} is not {device}, which trains; leave it out, or give trainer.devices")
