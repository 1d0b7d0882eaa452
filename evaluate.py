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
from lantern.estimate import available_memory, estimate, kept_dtype
from lantern.evaluation import Evaluation
from lantern.hardware import resolve_device
from lantern.outputs import publish, write_measurements
from lantern.pipeline import assemble, pipelines
from lantern.prompts import load_prompts
from lantern.provenance import write_provenance


@lru_cache
def built(config: str) -> object:
    return instantiate(OmegaConf.create(config))


def shared(config: DictConfig) -> object:
    """What a config builds, once for all points of a sweep in this process."""
    return built(OmegaConf.to_yaml(config, resolve=True))


def dry_run(cfg: DictConfig) -> None:
    """Prints what the setting needs in memory, and reads no file of the model."""
    place = resolve_device(cfg.device)
    cfg.dtype, cfg.device = kept_dtype(cfg.dtype, place), "meta"
    tree, drafts = instantiate(cfg.tree), "checkpoint" in cfg.drafter  # else nothing is loaded to draft with
    sizes = (1, cfg.batch_size) if cfg.quality.num_images else (1,)
    found = estimate(instantiate(cfg.model), getattr(tree, "num_nodes", 64) if drafts else 1, drafts, sizes, place)
    name = HydraConfig.get().runtime.choices.model
    print(f"model={name} in {cfg.dtype} on {place}\n{found.table(available_memory(place))}")


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
@in_one_sentence
def main(cfg: DictConfig) -> None:
    if cfg.dry_run:
        dry_run(cfg)
        return
    run, config = HydraConfig.get(), OmegaConf.to_container(cfg, resolve=True)
    folder = Path(run.runtime.output_dir)
    prompts = load_prompts(cfg.prompts, Path(cfg.paths.root) / "data" / "prompts")
    parts = {name: instantiate(cfg[name]) for name in ("drafter", "acceptance", "verification", "sampling", "loop")}
    parts |= {"model": shared(cfg.model), "name": run.runtime.choices.model}
    write_provenance(folder, config, {"target": parts["model"].weights_hash})
    if cfg.benchmark:
        instantiate(cfg.benchmark).run(pipelines(**parts), prompts, cfg.seed, folder)
        return
    sweep = Path(run.sweep.dir) if run.mode == RunMode.MULTIRUN else None
    evaluation = Evaluation(
        prompts=prompts,
        seed=cfg.seed,
        num_timed=cfg.speed.num_prompts,
        num_images=cfg.quality.num_images,
        batch_size=cfg.batch_size,
        metrics={name: shared(metric) for name, metric in cfg.metrics.items()} if cfg.quality.num_images else {},
        folder=folder,
        baseline_folder=(sweep or folder) / "ar",
    )
    pipeline = assemble(tree=instantiate(cfg.tree), **parts)
    measurements = evaluation.run(pipeline)
    write_measurements(folder, measurements)
    publish(folder, measurements, instantiate(cfg.tracking), config, sweep, cfg.sweep.name)


if __name__ == "__main__":
    main()
