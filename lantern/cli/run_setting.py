"""One setting from its configuration to its run folder; a module of its own, so that a launcher can send it to another
process."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern.cli.instantiate import shared
from lantern.data.prompts import load_prompts, split_prompts
from lantern.errors import LanternError
from lantern.evaluation.evaluate import Evaluation, check_sizes
from lantern.evaluation.fingerprint import (
    PLAIN,
    digest,
    fingerprint,
    is_finished,
    mark_finished,
    protocol,
    record_files,
    request,
)
from lantern.evaluation.provenance import write_provenance
from lantern.evaluation.rows import SUMMARY, Row
from lantern.models.checkpoints import local_hash
from lantern.pipeline import lacking, pipelines
from lantern.reporting.published import with_keys, with_published
from lantern.reporting.run_folder import publish, write_measurements
from lantern.runtime.hardware import allow_tf32
from lantern.runtime.memory import check_drafted
from lantern.tuning.auto import AutoTree, resolved
from lantern.tuning.saved_choice import CHOICE, KeptChoice


def run_setting(
    cfg: DictConfig, name: str, folder: Path, sweep: Path | None, method: str | None = None,
    repeated: Path | None = None,
) -> list[Row]:  # fmt: skip
    """Measures and writes. name: of the model; sweep: the folder of all points; method: the preset that was chosen;
    repeated: the folder of the run whose row is made again. Returns the rows, none where a shard ran."""
    speed, quality = cfg.speed, cfg.quality
    check_sizes(speed.num_prompts, quality.num_images, cfg.batch_size, cfg.shards, cfg.shard, speed.max_doublings)
    config = OmegaConf.to_container(cfg, resolve=True)
    tracker, budget = instantiate(cfg.tracking), instantiate(cfg.budget)  # what is wrong with them is said first
    prompts = split_prompts(load_prompts(cfg.prompts, Path(cfg.paths.root) / "data" / "prompts"), cfg.split)
    parts = {group: instantiate(cfg[group]) for group in ("drafter", "acceptance", "verification", "sampling", "loop")}
    parts |= {"model": shared(cfg.model), "name": name, "compile": cfg.compile}
    target, tree = parts["model"], instantiate(cfg.tree)
    allow_tf32(bool(cfg.get("tf32")))  # older records have none
    if cfg.shards > 1 and isinstance(tree, AutoTree):
        raise LanternError(
            f"shards={cfg.shards} would each find a tree of their own by tree=auto; run it once without shards, and "
            "give the shards the shape in its tree.json"
        )
    drafter_hash = local_hash(config["drafter"].get("checkpoint"))
    asked = request(config, target.weights_hash, digest(prompts), drafter_hash)
    if is_finished(folder, asked):
        os.utime(folder / SUMMARY)  # the sweep's end merges what this run of it has touched
        print(f"{folder} is finished")
        return list(json.loads((folder / SUMMARY).read_text()).values())
    if isinstance(tree, AutoTree):
        kept = KeptChoice(folder / CHOICE, asked)
        if repeated:
            kept.adopt(repeated / CHOICE)
        tree = tree.at(1 if speed.num_prompts else cfg.batch_size).keeping(kept)
    read = {"target": target.weights_hash, "drafter": drafter_hash, "prompts": digest(prompts)}
    write_provenance(folder, config, {name: found for name, found in read.items() if found})
    if cfg.benchmark:
        instantiate(cfg.benchmark).run(pipelines(**parts), prompts, cfg.seed, folder)
        return []
    joined = pipelines(**parts)
    pipeline = joined(resolved(tree, joined))
    if quality.num_images:  # said before anything is timed
        check_drafted(pipeline.target, pipeline.drafter, min(cfg.batch_size, quality.num_images))
    evaluation = Evaluation(
        prompts=prompts,
        seed=cfg.seed,
        num_timed=speed.num_prompts,
        num_images=quality.num_images,
        batch_size=cfg.batch_size,
        metrics={group: shared(metric) for group, metric in cfg.metrics.items()} if quality.num_images else {},
        folder=folder,
        baseline_folder=(sweep or folder) / "ar",
        fingerprint=fingerprint(config),
        plain_fingerprint=fingerprint(config, PLAIN),
        settings={} if parts["loop"] else own_settings(config, parts["drafter"], tree),
        known=record_files(sweep or folder),
        max_doublings=speed.max_doublings,
        laws=instantiate(cfg.output_tv),
        protocol=protocol(pipeline.target, prompts, cfg.split),
        shards=cfg.shards,
        shard=cfg.shard,
    )
    measurements = evaluation.run(pipeline)
    measurements = with_keys(measurements, {"method": method} if method else {})
    measurements = with_published(measurements, config["published"])
    if measurements:
        write_measurements(folder, measurements)
        publish(folder, measurements, tracker, budget, config, sweep, cfg.sweep.name)
        mark_finished(folder, asked)
    return [measured.row for measured in measurements]


def own_settings(config: Mapping, drafter: object, tree: object) -> Row:
    """Numbers of the drafter and, where it grows one, of the tree, by their names in the config: tree.total; of what
    starts a window its kind. What tree=auto has found stands in the place of the config's."""
    is_auto = isinstance(tree, AutoTree)
    groups = ["drafter", *(["tree"] if "tree" in lacking(drafter) and not is_auto else [])]
    found = tree.found.settings if is_auto and tree.found else {}
    numbers = {
        f"{group}.{name}": found.get(name, value) if group == "drafter" else value
        for group in groups
        for name, value in config[group].items()
        if isinstance(value, int | float) and not name.startswith("_")
    }
    start = config["drafter"].get("start")
    return numbers | ({"drafter.start": start["_target_"].rsplit(".", 1)[-1].lower()} if start else {})
