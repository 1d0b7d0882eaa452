"""One setting from its configuration to its run folder; a module of its own, so that a launcher can send it to another
process."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern import identity
from lantern.cli.composing import one_at_a_time, shared
from lantern.cli.plain_settings import check_settings
from lantern.data.prompts import load_prompts, split_prompts
from lantern.errors import LanternError
from lantern.evaluation.evaluate import Evaluation
from lantern.evaluation.plan import Plan
from lantern.evaluation.progress import EvaluationBar, sweep_bar
from lantern.evaluation.records import check_shards, is_finished, mark_begun, mark_finished, record_files
from lantern.evaluation.rows import Row, read_summary
from lantern.identity import code_hash, write_provenance
from lantern.models.checkpoints import local_hashes
from lantern.pipeline import Pipeline, check_skip, missing_arguments, pipelines
from lantern.reporting.merge import add_point, merge_points
from lantern.reporting.publish import publish, published_keys, write_measurements
from lantern.runtime.hardware import allow_tf32
from lantern.runtime.memory import check_memory
from lantern.tuning.auto import CHOICE, AutoTree, SavedChoice, resolve_tree
from lantern.types import Target


def run_setting(
    cfg: DictConfig, name: str, folder: Path, sweep: Path | None, method: str | None = None,
    overrides: Sequence[str] = (), repeated: Path | None = None,
) -> list[Row]:  # fmt: skip
    """Measures one setting and writes its run folder. name: of the model; sweep: the folder of all points; method: the
    chosen preset; overrides: of the command, recorded for reproduce=; repeated: the folder of the run whose row is made
    again. Returns the rows, none from a shard."""
    check_settings(cfg)
    config = OmegaConf.to_container(cfg, resolve=True)
    tracker, budget = instantiate(cfg.tracking), instantiate(cfg.budget)  # their errors come before a model is loaded
    plan = plan_of(cfg)
    parts, tree = _parts(cfg, name)
    hashes = _input_hashes(config, parts["model"], plan)
    request = identity.request_hash(config, hashes)
    if is_finished(folder, request):
        if sweep is None and plan.measures:
            merge_points(folder, [folder], "one setting", budget)  # which may be another than the run had
        return _finished_rows(folder, sweep)
    tree = _with_saved_tree(tree, plan, config, hashes, folder, repeated)
    if sweep is None and not plan.is_sharded:
        check_shards(folder, config, hashes)
    mark_begun(folder)
    write_provenance(folder, config, hashes)
    try:
        if cfg.get("study"):  # older records lack it
            instantiate(cfg.study).run(pipelines(**parts), plan.prompts, cfg.seed, folder)
            return []
        joined = pipelines(**parts)
        pipeline = joined(resolve_tree(tree, joined))
        check_skip(pipeline)
        check_memory(pipeline.target, pipeline.drafter.num_nodes, plan.images_at_once)  # before anything is timed
        plan = _identified(plan, config, pipeline, own_settings(config, parts["drafter"], tree), method, hashes)
        plan = replace(plan, folder=folder, shared=sweep, known=record_files(sweep or folder))
        metrics = {name: shared(metric) for name, metric in chosen_metrics(cfg).items()} if plan.num_images else {}
        with _bar(sweep) as bar:
            measurements = Evaluation(plan, metrics, instantiate(cfg.output_tv), bar).run(pipeline)
        if measurements:
            write_measurements(folder, measurements)
            publish(folder, sweep, measurements, config, tracker, budget)
            mark_finished(folder, request, overrides)
        return [measured.row for measured in measurements]
    finally:
        parts["model"].release()  # the next point of a sweep may need the memory, also after a failure


def _input_hashes(config: dict, target: Target, plan: Plan) -> dict[str, str | None]:
    """Hashes of what the measurement depends on beside its settings, by name."""
    hashes = identity.decoding_hashes(target) | {"torch": torch.__version__, "code": code_hash()}
    hashes["prompts"] = identity.digest(plan.prompts)
    hashes |= local_hashes({part: config.get(part) for part in ("model", "drafter", "metrics")})
    weight = target.embed_weight
    hashes["device and dtype"] = f"{weight.device.type} {weight.dtype}"  # that auto has chosen
    return hashes


@contextmanager
def _bar(sweep: Path | None) -> Iterator[EvaluationBar | None]:
    """The bar of this run or of its sweep, off the terminal afterwards; a sweep's points in other processes have
    none."""
    bar = sweep_bar() if sweep else EvaluationBar()
    try:
        yield bar
    finally:
        if bar:
            bar.pause()


def plan_of(cfg: DictConfig) -> Plan:
    """The prompts and sizes of a setting. Raises LanternError for those that no run can use."""
    prompts = split_prompts(load_prompts(cfg.prompts, Path(cfg.paths.root) / "data" / "prompts"), cfg.split)
    speed, quality = cfg.speed, cfg.quality
    sizes = (speed.num_prompts, quality.num_images, cfg.batch_size)
    timing = (speed.get("max_retimed", 0), speed.get("compiled_baseline", False))  # older records
    return Plan(prompts, *sizes, cfg.seed, *timing, cfg.shards, cfg.shard, cfg.get("lease_s", 60))


def _parts(cfg: DictConfig, name: str) -> tuple[dict[str, object], object]:
    """What a pipeline is assembled from, and the tree."""
    parts = {group: instantiate(cfg[group]) for group in ("drafter", "acceptance", "verification", "sampling")}
    parts |= {"model": one_at_a_time(cfg.model), "name": name, "compile": cfg.compile}
    tree = instantiate(cfg.tree)
    allow_tf32(bool(cfg.get("tf32")))  # older records have none
    if cfg.shards > 1 and isinstance(tree, AutoTree):
        raise LanternError(
            f"shards={cfg.shards} would each find a tree of their own by tree=auto; run it once without shards, and "
            "give the shards the shape in its tree.json"
        )
    return parts, tree


def _finished_rows(folder: Path, sweep: Path | None) -> list[Row]:
    """The rows of a finished run, which its sweep lists again."""
    if sweep:
        add_point(sweep, folder)
    print(f"{folder} is finished")
    return read_summary(folder)


def _with_saved_tree(
    tree: object, plan: Plan, config: Mapping, hashes: Mapping[str, str | None], folder: Path, repeated: Path | None
) -> object:
    """tree=auto for the images that are decoded at once, with its choice stored; another tree unchanged."""
    if not isinstance(tree, AutoTree):
        return tree
    size = 1 if plan.num_timed else plan.images_at_once
    kept = SavedChoice(folder / CHOICE, identity.choice_key(config, hashes, size))
    if repeated:
        kept.adopt(repeated / CHOICE)
    return tree.at(size, kept)


def _identified(
    plan: Plan, config: Mapping, pipeline: Pipeline, settings: Row, method: str | None, hashes: Mapping[str, str]
) -> Plan:
    """The plan with what identifies its rows."""
    tokenizer = next((found for name, found in hashes.items() if name.startswith("model.tokenizer")), None)
    preset = {"method": method} if method else {}
    weights = config["drafter"].get("checkpoint")
    if weights and pipeline.drafter.weights_hash:
        preset["drafter_name"] = "/".join(Path(weights).parts[-2:])  # by which a table tells two drafters apart
    return replace(
        plan,
        fingerprint=identity.config_fingerprint(config),
        plain_fingerprint=identity.config_fingerprint(config, identity.PLAIN),
        protocol=identity.protocol(pipeline.target, plan.prompts, config["split"]) | {"tokenizer_hash": tokenizer},
        settings=settings,
        notes=preset | published_keys({**pipeline.describe(), **settings, **preset}, config["published"] or {}),
    )


def chosen_metrics(cfg: DictConfig) -> dict[str, DictConfig]:
    """Without those that are null; metrics=[]: none."""
    chosen = {name: metric for name, metric in (cfg.get("metrics") or {}).items() if metric is not None}
    for name, metric in chosen.items():
        if not isinstance(metric, DictConfig):
            raise LanternError(f"metrics.{name}={metric} is no metric; metrics.{name}=null switches it off")
    return chosen


def own_settings(config: Mapping, drafter: object, tree: object) -> Row:
    """Numbers of the drafter and, where it grows one, of the tree, by their names in the config, such as tree.total; of
    a window's start its kind. A number that tree=auto has found replaces the config's."""
    is_auto = isinstance(tree, AutoTree)
    groups = ["drafter", *(["tree"] if "tree" in missing_arguments(drafter) and not is_auto else [])]
    found = tree.found.settings if is_auto and tree.found else {}
    numbers = {
        f"{group}.{name}": found.get(name, value) if group == "drafter" else value
        for group in groups
        for name, value in config[group].items()
        if isinstance(value, int | float) and not name.startswith("_")
    }
    start = config["drafter"].get("start")
    return numbers | ({"drafter.start": start["_target_"].rsplit(".", 1)[-1].lower()} if start else {})
