"""Measures the speed and the quality of a decoding method: one setting, or a sweep with +sweep=delta."""

import lantern  # noqa: F401  (first: see its docstring)

# isort: split
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern.cli.dry_run import drafted, estimate, kept_dtype
from lantern.cli.error_messages import in_one_sentence
from lantern.cli.reproduce import check_alone, compare_rows, moved, recorded_run
from lantern.cli.run_setting import run_setting
from lantern.runtime.hardware import resolve_device
from lantern.runtime.memory import available_memory


def dry_run(cfg: DictConfig) -> None:
    """Prints the memory that the setting needs, and reads no file of the model."""
    device = resolve_device(cfg.device)
    cfg.dtype, cfg.device = kept_dtype(cfg.dtype, device), "meta"
    sizes = (1, cfg.batch_size) if cfg.quality.num_images else (1,)
    largest = drafted(instantiate(cfg.drafter), instantiate(cfg.tree))
    found = estimate(instantiate(cfg.model), largest, "checkpoint" in cfg.drafter, sizes, device)
    name = HydraConfig.get().runtime.choices.model
    print(f"model={name} in {cfg.dtype} on {device}\n{found.table(available_memory(device))}")


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
@in_one_sentence
def main(cfg: DictConfig) -> None:
    if cfg.dry_run:
        dry_run(cfg)
        return
    run = HydraConfig.get()
    chosen = run.runtime.choices
    folder = Path(run.runtime.output_dir)
    if cfg.reproduce:
        check_alone(cfg.reproduce, run.overrides.task)
        recorded, rows, home = recorded_run(cfg.reproduce)
        again = OmegaConf.create(moved(recorded, cfg.paths.root))
        row = rows[-1]
        print(compare_rows(rows, run_setting(again, row["model"], folder, None, row.get("method"), home)))
    else:
        sweep = Path(run.sweep.dir) if run.mode == RunMode.MULTIRUN else None
        run_setting(cfg, chosen.model, folder, sweep, chosen.get("method"))


if __name__ == "__main__":
    main()
