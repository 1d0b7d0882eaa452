"""The command `train`: what train.py and the installed lantern-train run. What needs torch is imported
inside, so that --help and a mistyped setting are answered at once."""

from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.conf import HydraConf
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig

from lantern.cli.error_messages import in_one_sentence, without_hints
from lantern.cli.help_page import register
from lantern.cli.plain_settings import check_added
from lantern.errors import LanternError
from lantern.runtime.home import CONFIG_FOLDER
from lantern.runtime.launcher_end import ends_with_torchrun

if TYPE_CHECKING:
    import torch

register()


@ends_with_torchrun
@without_hints
@hydra.main(version_base="1.3", config_path=str(CONFIG_FOLDER), config_name="train")
@in_one_sentence
def train(cfg: DictConfig) -> None:
    """Trains one part, or resumes its training, and exports the weights."""
    run = hydra.core.hydra_config.HydraConfig.get()
    check_added(run.overrides.task, run.runtime.choices, "train")
    import pytorch_lightning as pl

    from lantern.reporting.page.write import config_dir
    from lantern.training import processes, run_steps
    from lantern.training.beginning import Beginning, keep_old_metrics
    from lantern.training.known_captions import check_words, data_hash
    from lantern.training.limits import FiniteLoss
    from lantern.training.run_length import tell_end
    from lantern.training.termination import PromptEnd

    (ending := PromptEnd()).listen()
    folder = Path(run.runtime.output_dir)
    run_steps.silence_warnings()
    asked = run_steps.named_checkpoint(cfg.ckpt_path, folder)
    _check(cfg, run)
    goes_on = asked is not None and run.mode != RunMode.MULTIRUN
    config = run_steps.whole_config(cfg)  # before _place: devices differ where a run goes on
    if not goes_on and run_steps.is_finished(folder, config):
        return
    pl.seed_everything(cfg.seed, workers=True, verbose=False)
    callbacks = [callback for callback in instantiate(cfg.callbacks).values() if callback]
    with run_steps.alone(folder):
        keep_old_metrics(folder)
        loggers = [logger for logger in instantiate(cfg.logger).values() if logger]
        trainer = instantiate(cfg.trainer, callbacks=[*callbacks, FiniteLoss(), ending], logger=loggers)
        processes.check_processes(trainer, cfg.batches.batch_size, run.overrides.hydra, run.mode == RunMode.MULTIRUN)
        _place(cfg, trainer.strategy.root_device)
        task, batches = instantiate(cfg.task), instantiate(cfg.batches)
        check_words(cfg, task, batches)
        weights = run_steps.weights_of(config, task) | data_hash(cfg, batches)
        checkpoint = run_steps.checkpoint_to_resume(folder, config, asked, weights)
        trainer.callbacks.insert(0, processes.SameOnAllProcesses(run_steps.whole_config(cfg), weights, checkpoint))
        trainer.callbacks.insert(0, Beginning(folder, config, cfg.device, weights, checkpoint))
        run_steps.fit(trainer, task, batches, checkpoint)
        tell_end(trainer, cfg.trainer)
        run_steps.export(task, trainer, folder / cfg.task_name, run.overrides.task, config_dir(run.runtime))


def _check(cfg: DictConfig, run: HydraConf) -> None:
    """Refuses, and warns of, what the settings alone tell."""
    from lantern.training import run_steps
    from lantern.training.limits import check_data, check_model, check_numbers, check_tables
    from lantern.training.run_length import tell_limits

    run_steps.check_overrides(run.overrides.task, cfg.task_name)
    check_model(cfg)
    check_tables(cfg)
    check_numbers(cfg)
    check_data(cfg)
    tell_limits(cfg.trainer, run.overrides.task, run.runtime.choices.task)


def _place(cfg: DictConfig, device: "torch.device") -> None:
    """Sets where and in which dtype the frozen target stands, by the device that trains. LanternError for another
    device."""
    from lantern.training.sharded_target import training_dtype

    if "sharded_target" in cfg.callbacks:
        cfg.dtype = training_dtype(cfg.dtype, device)
    elif cfg.device in ("auto", device.type):
        cfg.device = str(device)  # where Lightning puts the rest
    elif cfg.device != str(device):
        raise LanternError(
            f"device={cfg.device} is not {device}, which trains; leave it out, or choose what trains, such as by "
            "'trainer.devices=[1]'"
        )
