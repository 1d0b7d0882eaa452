"""Measures what a way of decoding gains in speed and costs in quality: one setting, or a sweep with +sweep=delta."""

import lantern  # noqa: F401  (first: see its docstring)

# isort: split
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from lantern.command import in_one_sentence
from lantern.reproduction import compare_rows, moved, recorded_run
from lantern.running import run_setting


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
@in_one_sentence
def main(cfg: DictConfig) -> None:
    run = HydraConfig.get()
    folder = Path(run.runtime.output_dir)
    if cfg.reproduce:
        recorded, rows = recorded_run(cfg.reproduce)
        again = OmegaConf.create(moved(recorded, cfg.paths.root))
        print(compare_rows(rows, run_setting(again, rows[-1]["model"], folder, None)))
    else:
        sweep = Path(run.sweep.dir) if run.mode == RunMode.MULTIRUN else None
        run_setting(cfg, run.runtime.choices.model, folder, sweep)


if __name__ == "__main__":
    main()
