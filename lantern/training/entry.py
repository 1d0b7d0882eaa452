"""The command `train`: what train.py and the installed lantern-train run."""

from pathlib import Path

import hydra
import pytorch_lightning as pl
from hydra.utils import instantiate
from omegaconf import DictConfig

from lantern.cli.error_messages import in_one_sentence, without_hints
from lantern.runtime.home import CONFIG_FOLDER
from lantern.training.limits import FiniteLoss, check_numbers
from lantern.training.run_steps import (
    check_overrides,
    check_resumable,
    export,
    fit,
    keep_old_metrics,
    record,
    silence_warnings,
    unfinished_checkpoint,
    whole_config,
)


@without_hints
@hydra.main(version_base="1.3", config_path=str(CONFIG_FOLDER), config_name="train")
@in_one_sentence
def train(cfg: DictConfig) -> None:
    """Trains one part, or resumes its training, and exports the weights."""
    run = hydra.core.hydra_config.HydraConfig.get()
    folder = Path(run.runtime.output_dir)
    silence_warnings()
    check_resumable(cfg.ckpt_path)
    check_overrides(run.overrides.task)
    check_numbers(cfg)
    pl.seed_everything(cfg.seed, workers=True, verbose=False)
    callbacks = [callback for callback in instantiate(cfg.callbacks).values() if callback]
    keep_old_metrics(folder)
    loggers = [logger for logger in instantiate(cfg.logger).values() if logger]
    trainer = instantiate(cfg.trainer, callbacks=[*callbacks, FiniteLoss()], logger=loggers)
    if cfg.device == "auto":
        cfg.device = str(trainer.strategy.root_device)  # the frozen target stands where Lightning puts the rest
    task, batches = instantiate(cfg.task), instantiate(cfg.batches)
    config = whole_config(cfg)
    checkpoint = cfg.ckpt_path or unfinished_checkpoint(folder, config)
    record(folder, config, loggers, task)
    fit(trainer, task, batches, checkpoint)
    export(task, trainer, folder / cfg.task_name, run.overrides.task)
