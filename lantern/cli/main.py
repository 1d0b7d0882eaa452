"""The commands `evaluate` and `export`: what evaluate.py, export.py and the installed lantern-… scripts run. What needs
torch is imported inside them, so that --help and a mistyped setting are answered at once."""

import sys
from functools import partial
from math import inf
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig

from lantern.cli.composing import built
from lantern.cli.error_messages import at_end, command
from lantern.cli.settings import check_settings, figure_of
from lantern.errors import LanternError, ctrl_c
from lantern.evaluation.progress import EvaluationBar, open_bar
from lantern.runtime.files import alone_in
from lantern.runtime.overrides import override


@command("evaluate")
def evaluate(cfg: DictConfig) -> float | None:
    """Measures one setting and writes its run folder; with dry_run tells the memory instead. Returns the figure
    `optimized_metric` for a sweeper, or for a row that exceeds budget.most minus the excess, or inf for one that
    minimises."""
    run = HydraConfig.get()
    folder, choices, overrides = Path(run.runtime.output_dir), run.runtime.choices, run.overrides.task
    check_settings(cfg)
    if cfg.dry_run:
        from lantern.cli.run_setting import print_estimate

        print_estimate(cfg)
        return None
    is_sweep = run.mode == RunMode.MULTIRUN
    with alone_in(folder):
        if not is_sweep:
            at_end.append(partial(open_bar, None))
        open_bar(EvaluationBar.of_process if is_sweep else EvaluationBar())  # before torch is imported
        from lantern.cli.run_setting import run_setting

        ctrl_c(ends_at_once=False)
        sweep = Path(run.sweep.dir) if is_sweep else None
        try:
            rows = run_setting(cfg, choices.model, folder, sweep, choices.get("method"), overrides)
        except KeyboardInterrupt:
            if not is_sweep:  # whose report names its folder
                print(
                    f"\nthe images made so far are kept; go on with {override('hydra.run.dir', folder)}",
                    file=sys.stderr,
                )
            raise
        if not rows or (figure := figure_of(rows[-1], cfg.optimized_metric)) is None:  # none of a shard
            return None
        if not (excess := instantiate(cfg.budget).excess(rows[-1])):
            return figure
        return inf if "minim" in str(run.sweeper.get("direction", "")).lower() else -excess


@command("export")
def export(cfg: DictConfig) -> None:
    """Writes a drafter into a folder of its own."""
    from lantern.models.checkpoints import RANDOM

    drafter = HydraConfig.get().runtime.choices.drafter
    if cfg.drafter.get("checkpoint", RANDOM) == RANDOM:
        raise LanternError(f"drafter={drafter} has no weights to export; use drafter=eagle drafter.checkpoint=…")
    if not cfg.to:  # which Path takes for the working folder
        raise LanternError(f"to={cfg.to} names no folder; give the one to write to")
    from lantern.drafters.export import write_drafter

    weights = write_drafter(cfg.drafter.checkpoint, built(cfg.model), cfg.to)
    print(f"drafter written to {weights} and the config.json beside it")
