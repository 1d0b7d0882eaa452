"""Measures what a way of decoding gains in speed and costs in quality: one setting, or a sweep with +sweep=delta."""

import lantern  # noqa: F401  (first: see its docstring)

# isort: split
from functools import lru_cache
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern.command import in_one_sentence
from lantern.evaluation import Evaluation
from lantern.merging import merge_points
from lantern.outputs import write_measurements
from lantern.pipeline import assemble
from lantern.prompts import load_prompts
from lantern.provenance import write_provenance
from lantern.sweep import group_name


@lru_cache
def shared(config: str) -> object:
    """What a config builds, once for all points of a sweep in this process."""
    return instantiate(OmegaConf.create(config))


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
@in_one_sentence
def main(cfg: DictConfig) -> None:
    run = HydraConfig.get()
    folder, is_sweep = Path(run.runtime.output_dir), run.mode == RunMode.MULTIRUN
    around = Path(run.sweep.dir) if is_sweep else folder
    config = OmegaConf.to_container(cfg, resolve=True)
    prompts = load_prompts(cfg.prompts, Path(cfg.paths.root) / "data" / "prompts")
    wanted = cfg.metrics.items() if cfg.quality.num_images else ()
    metrics = {name: shared(OmegaConf.to_yaml(metric, resolve=True)) for name, metric in wanted}
    parts = {name: instantiate(cfg[name]) for name in ("drafter", "tree", "acceptance", "verification", "sampling")}
    pipeline = assemble(shared(OmegaConf.to_yaml(cfg.model, resolve=True)), **parts, name=run.runtime.choices.model)
    write_provenance(folder, config, {"target": pipeline.target.weights_hash})
    evaluation = Evaluation(
        prompts, cfg.seed, cfg.speed.num_prompts, cfg.quality.num_images, cfg.batch_size, metrics, folder, around / "ar"
    )
    measurements = evaluation.run(pipeline)
    write_measurements(folder, measurements)
    tracker, group = instantiate(cfg.tracking), group_name(cfg.sweep.name if is_sweep else "evaluate", around)
    columns = {measured.row["acceptance"]: measured.images for measured in measurements}
    for measured in measurements[-1:] if is_sweep else measurements:
        tracker.point(measured.row, config, folder, group, measured.batch.prompts, columns)
    if not is_sweep:
        merge_points(folder, [folder], "one setting")


if __name__ == "__main__":
    main()
