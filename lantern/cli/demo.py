"""The demo of a fresh clone, sized to the machine: trains a drafter, sweeps LANTERN's delta beside lossless decoding,
and says in plain words what came out. All it does are commands of this repository, which it prints."""

from math import isfinite
from pathlib import Path
from time import perf_counter

import hydra
from omegaconf import DictConfig

from lantern.cli.error_messages import in_one_sentence, without_hints
from lantern.cli.subcommand import run_command
from lantern.errors import LanternError, is_number
from lantern.models.checkpoints import weights_file
from lantern.runtime.files import read_object
from lantern.runtime.home import CONFIG_FOLDER
from lantern.runtime.overrides import max_time, override

PLAN = "plan.json"
CONTINUE = "started again, the demo goes on from here"
MINUTES = {True: 6.0, False: 8.0}  # by whether the device is fast with bfloat16


@without_hints
@hydra.main(version_base="1.3", config_path=str(CONFIG_FOLDER), config_name="demo")
@in_one_sentence
def demo(cfg: DictConfig) -> None:
    """Plans, trains, sweeps and sums up; a plan on record is followed."""
    folder = Path(hydra.core.hydra_config.HydraConfig.get().runtime.output_dir)
    place = [f"device={cfg.device}", f"dtype={cfg.dtype}"]
    plan = recorded_plan(folder, cfg.demo.minutes) or _new_plan(folder, cfg.demo.minutes, place)
    print("\n".join(plan["sentences"]), flush=True)
    if not weights_file(folder / "train" / "drafter").is_file():  # what an export writes last
        run_command(training_command(plan, folder, place), CONTINUE)
    run_command(sweep_command(plan, folder, place), CONTINUE)
    print("\n" + "\n".join(_summary(plan, folder, Path(cfg.paths.weights) / "drafter")))


def recorded_plan(folder: Path, minutes: str | float) -> dict | None:
    """The plan of a demo that was begun in this folder; LanternError if it was given other minutes."""
    plan = read_object(folder / PLAN)
    if not plan:
        return None
    if (given := plan.get("given")) != minutes:
        raise LanternError(
            f"hydra.run.dir={folder} holds a demo of demo.minutes={given}, not {minutes}; give another folder "
            "(RUN=… of make demo)"
        )
    return plan


def training_command(plan: dict, folder: Path, place: list[str]) -> list[str]:
    """train.py on the frozen target, for the seconds planned."""
    limit = max_time(plan["training_s"])
    images = f"rendered.num_train={plan['training_images']}"
    return ["train.py", "model=llamagen", *place, images, limit, override("hydra.run.dir", folder / "train")]


def sweep_command(plan: dict, folder: Path, place: list[str]) -> list[str]:
    """evaluate.py with the drafter just trained, of the size planned."""
    size = plan["size"]
    return [
        "evaluate.py", "+sweep=demo", *place, *plan["tree"].split(),
        override("drafter.checkpoint", folder / "train" / "drafter"),
        f"acceptance.delta={','.join(f'{delta:g}' for delta in size['deltas'])}",
        f"speed.num_prompts={size['num_prompts']}", f"quality.num_images={size['num_images']}",
        override("hydra.sweep.dir", folder / "sweep"),
    ]  # fmt: skip


def _new_plan(folder: Path, given: str | float, place: list[str]) -> dict:
    from lantern.cli.demo_timings import timings_of
    from lantern.evaluation.rows import encode
    from lantern.runtime.files import replace_text
    from lantern.runtime.hardware import DTYPES, is_bf16_fast, resolve_device, resolve_dtype
    from lantern.studies.demo_plan import plan_demo

    start = perf_counter()
    device = resolve_device(place[0].split("=")[1])
    dtype = resolve_dtype(place[1].split("=")[1], device)
    is_fast = dtype is DTYPES["bfloat16"] and is_bf16_fast(device)
    minutes = MINUTES[is_fast] if given == "auto" else given
    if not is_number(minutes) or not isfinite(minutes) or minutes <= 0:
        raise LanternError(f"demo.minutes={given} is no number of minutes; give one above 0, or auto")
    print("timing this machine …", flush=True)
    timings = timings_of(place)
    plan = plan_demo(float(minutes), timings, perf_counter() - start)
    record = plan.record() | {"given": given, "sentences": plan.sentences()}
    replace_text(folder / PLAN, encode(record, indent=2) + "\n")
    return record


def _summary(plan: dict, folder: Path, shipped: Path) -> list[str]:
    from lantern.evaluation.rows import merge_rows, read_summary
    from lantern.models.checkpoints import local_hash
    from lantern.reporting.demo_summary import demo_summary
    from lantern.reporting.merge import point_folders
    from lantern.reporting.recipe_runs import kept_validation

    points = point_folders(folder / "sweep")
    rows = merge_rows(row for point in points for row in read_summary(point))
    best = kept_validation(folder / "train")
    trained = {"seconds": plan["training_s"], "overlap": best["val/alpha_1"], "length": best["val/sim_accept_len"]}
    return demo_summary(rows, trained, local_hash(str(shipped)), str(folder))


if __name__ == "__main__":
    demo()
