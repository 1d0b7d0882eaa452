"""One setting from its configuration to its run folder; a module of its own, so that a launcher can send it to another
process."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern import identity
from lantern.cli.composing import built, one_at_a_time, shared
from lantern.cli.settings import check_settings, group_of, warn_unused_tree
from lantern.data.prompts import load_prompts, split_prompts
from lantern.errors import LanternError
from lantern.evaluation.evaluate import Evaluation
from lantern.evaluation.plan import Plan
from lantern.evaluation.progress import EvaluationBar, sweep_bar
from lantern.evaluation.records import (
    check_shards,
    is_finished,
    mark_begun,
    mark_finished,
    place_note,
    record_files,
)
from lantern.evaluation.rows import Row, read_summary
from lantern.models.checkpoints import local_hashes
from lantern.models.hub import commit_of
from lantern.pipeline import Pipeline, check_skip, missing_arguments, pipelines
from lantern.reporting.merge import add_point, merge_points
from lantern.reporting.publish import paper_keys, publish, write_measurements
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
    allow_tf32(cfg.tf32)
    parts = {group: built(cfg[group]) for group in ("drafter", "acceptance", "verification", "sampling")}
    parts |= {"model": one_at_a_time(cfg.model), "name": name, "compile": cfg.compile}
    hashes = _input_hashes(config, parts["model"], plan)
    request = identity.request_hash(config, hashes)
    if is_finished(folder, request):
        print(f"{folder} is finished{place_note(folder, config)}")
        if sweep:
            add_point(sweep, folder)
        elif plan.measures:
            merge_points(folder, [folder], "one setting", budget)  # which may be another than the run had
        return read_summary(folder)
    tree = _tree(cfg, config, plan, hashes, folder, repeated)
    warn_unused_tree([given for given in overrides if group_of(given) == "tree"], tree, parts["drafter"])
    if sweep is None and not plan.is_sharded:
        check_shards(folder, config, hashes)
    mark_begun(folder)
    identity.write_provenance(folder, config, hashes)
    try:
        joined = pipelines(**parts)
        if cfg.study:
            instantiate(cfg.study).run(joined, plan.prompts, cfg.seed, folder)
            return []
        pipeline = joined(resolve_tree(tree, joined))
        check_skip(pipeline)
        check_memory(pipeline.target, pipeline.drafter.num_nodes, plan.images_at_once)  # before anything is timed
        plan = _identified(plan, config, pipeline, own_settings(config, parts["drafter"], tree), method, hashes)
        plan = replace(plan, folder=folder, shared=sweep, known=record_files(sweep or folder))
        chosen = {name: metric for name, metric in (cfg.get("metrics") or {}).items() if metric and plan.num_images}
        metrics = {name: shared(metric) for name, metric in chosen.items()}
        with _bar(sweep) as bar:
            measurements = Evaluation(plan, metrics, instantiate(cfg.output_tv), bar).run(pipeline)
        if measurements:
            write_measurements(folder, measurements)
            publish(folder, sweep, measurements, config, tracker, budget)
            mark_finished(folder, request, overrides)
        return [measured.row for measured in measurements]
    finally:
        parts["model"].release()  # the next point of a sweep may need the memory, also after a failure


def plan_of(cfg: DictConfig) -> Plan:
    """The prompts and sizes of a setting."""
    prompts = split_prompts(load_prompts(cfg.prompts, Path(cfg.paths.root) / "data" / "prompts"), cfg.split)
    speed, quality = cfg.speed, cfg.quality
    if speed is None or quality is None:
        raise LanternError("speed=null, quality=null: speed.num_prompts=0 or quality.num_images=0 switches a part off")
    sizes = (speed.num_prompts, quality.num_images, cfg.batch_size)
    timing = (speed.max_retimed, speed.compiled_baseline)
    return Plan(prompts, *sizes, cfg.seed, *timing, cfg.shards, cfg.shard)


def _input_hashes(config: Mapping, target: Target, plan: Plan) -> dict[str, str | None]:
    """Hashes of what the measurement depends on beside its settings, by name."""
    weight = target.embed_weight
    return {
        **identity.decoding_hashes(target),
        "torch": torch.__version__,
        "code": identity.code_hash(),
        **{f"{group}.code": read for group, part in config.items() if (read := identity.user_code(part))},
        "prompts": identity.digest(plan.prompts),
        **local_hashes({part: config.get(part) for part in ("model", "drafter", "metrics")}),
        **identity.named_files({part: config.get(part) for part in identity.READING}),
        "device and dtype": f"{weight.device.type} {weight.dtype}",  # that auto has chosen
    }


def _tree(
    cfg: DictConfig, config: Mapping, plan: Plan, hashes: Mapping[str, str | None], folder: Path, repeated: Path | None
) -> object:
    """The tree; tree=auto for the images that are decoded at once, with its choice stored."""
    tree = instantiate(cfg.tree)
    if not isinstance(tree, AutoTree):
        return tree
    if plan.is_sharded:
        raise LanternError(
            f"shards={plan.shards} would each find a tree of their own by tree=auto; run it once without shards, and "
            "give the shards the shape in its tree.json"
        )
    size = 1 if plan.num_timed else plan.images_at_once
    kept = SavedChoice(folder / CHOICE, identity.choice_key(config, hashes, size))
    if repeated:
        kept.adopt(repeated / CHOICE)
    return tree.at(size, kept)


def _identified(
    plan: Plan, config: Mapping, pipeline: Pipeline, settings: Row, method: str | None, hashes: Mapping[str, str]
) -> Plan:
    tokenizer = next((found for name, found in hashes.items() if name.startswith("model.tokenizer")), None)
    preset: Row = {"method": method} if method else {}
    of_files = {"target_commit": commit_of(config["model"].get("checkpoint")), "tokenizer_hash": tokenizer}
    weights = config["drafter"].get("checkpoint")
    if weights and pipeline.drafter.weights_hash:
        preset["drafter_commit"] = commit_of(weights)
        preset["drafter_name"] = "/".join(Path(weights).parts[-2:])  # by which a table tells two drafters apart
    return replace(
        plan,
        fingerprint=identity.config_fingerprint(config),
        plain_fingerprint=identity.config_fingerprint(config, identity.PLAIN),
        protocol=identity.protocol(pipeline.target, plan.prompts, config) | of_files,
        settings=settings,
        notes=preset | paper_keys({**pipeline.describe(), **settings, **preset}, config["published"] or {}),
    )


def own_settings(config: Mapping, drafter: object, tree: object) -> Row:
    """Numbers of drafter, verification and, where the drafter grows one, tree, by their names in the config, such as
    tree.total; of a window's start its kind. A number that tree=auto has found replaces the config's."""
    is_auto = isinstance(tree, AutoTree)
    groups = ["drafter", "verification", *(["tree"] if "tree" in missing_arguments(drafter) and not is_auto else [])]
    numbers = dict(chain.from_iterable(_numbers(group, config[group]) for group in groups))
    if is_auto and tree.found:
        found = {f"drafter.{name}": value for name, value in tree.found.settings.items()}
        numbers |= {name: found[name] for name in numbers.keys() & found}
    start = config["drafter"].get("start")
    return numbers | ({"drafter.start": start["_target_"].rsplit(".", 1)[-1].lower()} if start else {})


def _numbers(name: str, settings: Mapping) -> Iterator[tuple[str, float]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _numbers(f"{name}.{key}", value)
        elif isinstance(value, int | float) and not key.startswith("_"):
            yield f"{name}.{key}", value


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
