"""`make weights`: trains the embedded weights from start to end, each part by a `train.py` of its own on the parts
before it. The same command goes on where a stopped one was: finished parts are kept, an unfinished one resumes."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lantern.errors import LanternError

TRAIN = (sys.executable, "-c", "from lantern.training.entry import train; train()")
PARTS: dict[str, tuple[str, ...]] = {  # settings of `train.py` by part, in the order of what they read
    "critic": ("task=critic", "trainer.max_steps=600"),
    "tokenizer": ("task=tokenizer", "trainer.max_steps=4000", "trainer.val_check_interval=4000"),
    "target": ("task=target", "rendered.num_train=24000", "trainer.max_time=00:01:30:00"),
    "target_continuous": ("task=target_continuous", "trainer.max_time=00:01:00:00"),
    "drafter": (
        "task=drafter_self", "recipe=layered", "data.num_train=6144", "feature_table.budget_gib=9",
        "trainer.max_time=00:01:10:00",
    ),
    "parallel": (
        "task=drafter", "drafter=parallel", "recipe=feature_lk", "data.num_train=4096",
        "task.start_from=${paths.weights}/drafter", "trainer.max_time=00:00:24:00",
    ),
}  # fmt: skip


def run(folder: Path, parts: Mapping[str, Sequence[str]], train: Sequence[str] = TRAIN) -> Path:
    """Trains the parts that folder/weights lacks, part p in folder/p; returns folder/weights. `train`: the command
    that takes their settings. LanternError if one fails."""
    weights = folder / "weights"
    weights.mkdir(parents=True, exist_ok=True)
    for name, settings in parts.items():
        if (weights / name).is_dir():
            continue
        places = [f"paths.weights={weights}", f"paths.cache_dir={folder / 'cache'}", f"hydra.run.dir={folder / name}"]
        print(f"{name}: train.py {shlex.join(settings)}", flush=True)
        if status := subprocess.run([*train, *settings, *places]).returncode:
            raise LanternError(
                f"the training of {name} ended with status {status}, see {folder / name}/train.log; the same command "
                "goes on from there"
            )
        _keep(folder / name / exported_by(settings), weights / name)
    return weights


def exported_by(settings: Sequence[str]) -> str:
    """The name of the folder that train.py exports to: that of its task, on whichever images."""
    task = next(value for key, _, value in (setting.partition("=") for setting in settings) if key == "task")
    return task.removesuffix("_self")


def _keep(exported: Path, place: Path) -> None:
    partial = place.with_name(f".{place.name}")
    shutil.rmtree(partial, ignore_errors=True)  # of a command that was stopped while copying
    shutil.copytree(exported, partial)
    partial.rename(place)


def main() -> None:
    """python -m lantern.studies.weights <folder>; prints the size of every part."""
    try:
        weights = run(Path(sys.argv[1]).resolve(), PARTS)
    except LanternError as error:
        sys.exit(str(error))
    sizes = {part: (weights / part / "model.safetensors").stat().st_size / 1e6 for part in PARTS}
    for part, size in sizes.items():
        print(f"{weights / part}  {size:.1f} MB")
    print(f"{sum(sizes.values()):.1f} MB in all; to ship them, copy these folders to data/weights")


if __name__ == "__main__":
    main()
