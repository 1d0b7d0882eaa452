"""One setting from its configuration to its run folder; a module, so that a launcher can send it to another process."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern import identity
from lantern.cli.composing import built, one_at_a_time, shared
from lantern.cli.settings import check_numbers, group_of
from lantern.data.prompts import load_prompts, split_prompts
from lantern.errors import LanternError
from lantern.evaluation.evaluate import Evaluation, Measurement
from lantern.evaluation.progress import EvaluationBar
from lantern.evaluation.request import Request
from lantern.evaluation.rows import Row, RowIdentity, read_summary
from lantern.evaluation.run_folder import EvaluationFolder
from lantern.models.checkpoints import local_hashes
from lantern.models.hub import commit_of
from lantern.pipeline import Pipeline, check_skip, pipelines
from lantern.reporting.publish import publish, show, track, write_measurements
from lantern.runtime.hardware import allow_tf32, is_bf16_fast, resolve_device
from lantern.runtime.memory import Estimate, available_memory, check_memory
from lantern.runtime.overrides import command_of, leaves
from lantern.tuning.auto import CHOICE, AutoTree, SavedChoice, resolve_tree
from lantern.types import Target, reader_of

DRY_RUN_NODES = 64  # of a round's tree or window; methods have 16 to 61


def run_setting(
    cfg: DictConfig, name: str, folder: Path, sweep: Path | None, method: str | None = None,
    overrides: Sequence[str] = (),
    measure: Callable[[Evaluation, Pipeline], list[Measurement]] = lambda one, pipeline: one.run(pipeline),
) -> list[Row]:  # fmt: skip
    """Measures one setting and writes its run folder. name: of the model; sweep: the folder of all points; method: the
    preset; overrides: of the command; measure: if it gives nothing, none is written. Returns rows, none of a shard."""
    config = OmegaConf.to_container(cfg, resolve=True)
    check_numbers(config)
    tracker, budget = instantiate(cfg.tracking), instantiate(cfg.budget)  # their errors come before a model is loaded
    request, run = request_of(cfg), EvaluationFolder(folder, sweep)
    allow_tf32(cfg.tf32)
    parts: dict[str, Any] = {part: built(cfg[part]) for part in ("drafter", "acceptance", "verification", "sampling")}
    parts |= {"model": one_at_a_time(cfg.model), "name": name, "compile": cfg.compile}
    if not (reader := reader_of(parts["model"])).reads_any_text and callable(reader):
        reader([*request.timed.prompts, *request.batch.prompts])  # a metric would say less of a mistyped word
    hashes = _input_hashes(config, parts["model"], request.prompts)
    asked = identity.request_hash(config, hashes)
    bar = EvaluationBar.of_process or EvaluationBar(0 if sweep else 1)
    if run.is_finished(asked):
        bar.pause()
        print(f"{folder} is finished{run.place_note(config)}")
        show(run, request.measures, budget)  # the budget may be another than the run had
        rows = read_summary(folder)
        if request.measures and not (folder / "wandb").exists():  # W&B was off
            track(run, rows, config, tracker)
        return rows
    tree = instantiate(cfg.tree)
    if isinstance(tree, AutoTree):
        tree = tree.at(*_searched(config, request, hashes, folder))
    run.begin(config, hashes, command_of(HydraConfig.get()) if HydraConfig.initialized() else None)
    try:
        joined = pipelines(**parts)
        if cfg.study:
            bar.pause()
            instantiate(cfg.study).run(joined, request.prompts, cfg.seed, folder)
            return []
        pipeline = joined(resolve_tree(tree, joined, [given for given in overrides if group_of(given) == "tree"]))
        check_skip(pipeline)
        check_memory(pipeline.target, pipeline.drafter.num_nodes, request.images_at_once)  # before anything is timed
        settings = own_settings(config, tree, "tree" in joined.drafter_parameters)
        rows = _row_identity(config, pipeline, settings, request.prompts, method, hashes)
        chosen = {name: metric for name, metric in (cfg.get("metrics") or {}).items() if metric and request.num_images}
        metrics = {name: shared(metric) for name, metric in chosen.items()}
        measurements = measure(Evaluation(request, run, rows, metrics, instantiate(cfg.output_tv), bar), pipeline)
    finally:
        if not sweep:
            bar.pause()
        parts["model"].release()  # the next point of a sweep may need the memory, also after a failure
    if measurements:
        write_measurements(folder, measurements)
        publish(run, measurements, config, tracker, budget)
        run.finish(asked)
    return [measured.row for measured in measurements]


def request_of(cfg: DictConfig) -> Request:
    """The prompts and sizes of a setting."""
    speed, quality = cfg.speed, cfg.quality
    if speed is None or quality is None:
        raise LanternError("speed=null, quality=null: speed.num_prompts=0 or quality.num_images=0 switches a part off")
    prompts = split_prompts(load_prompts(cfg.prompts, Path(cfg.paths.root) / "data" / "prompts"), cfg.split)
    metrics = [metric._target_ for metric in (cfg.get("metrics") or {}).values() if metric]
    kinds = [instantiate({"_target_": name, "_partial_": True}).func for name in metrics]  # none is built
    return Request(
        prompts, speed.num_prompts, quality.num_images, cfg.batch_size, cfg.seed, max_retimed=speed.max_retimed,
        compiled_baseline=speed.compiled_baseline, shards=cfg.shards, shard=cfg.shard,
        least_images=max((getattr(kind, "min_images", 0) for kind in kinds), default=0),
    )  # fmt: skip


def print_estimate(cfg: DictConfig) -> None:
    """The memory that a setting needs, from shapes on the meta device: python evaluate.py model=… dry_run=true. Of a
    model of transformers its config.json is read, of others no file: it runs before the weights are downloaded."""
    request, device = request_of(cfg), resolve_device(cfg.device)
    if cfg.dtype == "auto":
        cfg.dtype = "bfloat16" if is_bf16_fast(device) else "float32"
    cfg.device = "meta"
    target = instantiate(cfg.model).configured(cfg.sampling.cfg_scale)
    found = Estimate.of(target, DRY_RUN_NODES, request.images_at_once)
    batch = f"B = {request.images_at_once}"
    rows = {
        "weights": found.weights,
        f"keys and values, {batch}": found.caches,
        f"laws of a round, {batch}": found.tables,
        f"all, {batch}": sum(found),
    }
    if (free := available_memory(device)) is not None:
        rows["free on this device"] = free
    print(f"model={HydraConfig.get().runtime.choices.model} in {cfg.dtype} on {device}")
    for name, size in rows.items():
        print(f"{name:32}  {size / 2**30:8.2f} GiB")
    if device.type == "cpu":
        print("on a CPU LlamaGen's layers come a second time, and its keys and values are float32")


def _input_hashes(config: Mapping, target: Target, prompts: Sequence[str]) -> dict[str, str | None]:
    """Hashes of what the measurement depends on beside its settings, by name."""
    weight = target.embed_weight
    return {
        **identity.decoding_hashes(target),
        "torch": torch.__version__,
        "code": identity.code_hash(),
        **{f"{group}.code": read for group, part in config.items() if (read := identity.user_code(part))},
        "prompts": identity.digest(prompts),
        **local_hashes({part: config.get(part) for part in ("model", "drafter", "metrics")}),
        **identity.named_files({part: config.get(part) for part in (*identity.READING, "metrics")}),
        **identity.named_folders({"metrics": config.get("metrics")}, "references"),
        "device and dtype": f"{weight.device.type} {weight.dtype}",  # that auto has chosen
    }


def _searched(config: Mapping, request: Request, hashes: Mapping, folder: Path) -> tuple[int, SavedChoice]:
    """For tree=auto the number of images that are decoded at once, and where its choice is stored."""
    if request.is_sharded:
        raise LanternError(f"shards={request.shards} would each search a tree; give one, or a window's drafter.length")
    size = 1 if request.num_timed else request.images_at_once
    return size, SavedChoice(folder / CHOICE, identity.choice_key(config, hashes, size))


def _row_identity(
    config: Mapping, pipeline: Pipeline, settings: Row, prompts: Sequence[str], method: str | None,
    hashes: Mapping[str, str | None],
) -> RowIdentity:  # fmt: skip
    tokenizer = next((found for name, found in hashes.items() if name.startswith("model.tokenizer")), None)
    preset: Row = {"method": method} if method else {}
    of_files = {"target_commit": commit_of(config["model"].get("checkpoint")), "tokenizer_hash": tokenizer}
    weights = config["drafter"].get("checkpoint")
    if weights and pipeline.drafter.weights_hash:
        preset["drafter_commit"] = commit_of(weights)
        preset["drafter_name"] = "/".join(Path(weights).parts[-2:])  # by which a table tells two drafters apart
    return RowIdentity(
        identity.config_fingerprint(config),
        identity.config_fingerprint(config, identity.PLAIN_DECODING),
        identity.protocol(pipeline.target, prompts, config) | of_files,
        settings,
        preset,
    )


def own_settings(config: Mapping, tree: object, grows_tree: bool) -> Row:
    """Numbers of drafter, verification and, where the drafter grows one, tree, by their names in the config, such as
    `tree.total`; for a window, the kind of its start. A number that tree=auto has found replaces the config's."""
    is_auto = isinstance(tree, AutoTree)
    groups = ["drafter", "verification", *(["tree"] if grows_tree and not is_auto else [])]
    held = leaves({group: config[group] for group in groups})
    numbers = {name: value for name, value in held.items() if isinstance(value, int | float) and "._" not in name}
    if is_auto and tree.found:
        found = {f"drafter.{name}": value for name, value in tree.found.items()}
        numbers |= {name: found[name] for name in numbers.keys() & found}
    start = config["drafter"].get("start")
    return numbers | ({"drafter.start": start["_target_"].rsplit(".", 1)[-1].lower()} if start else {})
