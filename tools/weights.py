"""`make weights`: trains the embedded weights from start to end, each part by a `train.py` of its own on the parts
before it. The same command goes on where a stopped one was: finished parts are kept, an unfinished one resumes."""

import argparse
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lantern.errors import LanternError
from lantern.models.checkpoints import load_weights, save_weights
from lantern.runtime.home import program_of
from lantern.runtime.overrides import override

TRAIN, _ = program_of("train.py")
STEM = "encoder"  # the tokenizer before its decoder is trained further, which is not shipped
HALVED = {"tokenizer": "decoder.", "target": "", "drafter": "", "target_continuous": ""}
# part -> name prefix of the weights that are stored in half precision; weights that make tokens are not
NUM_DRAWN = 6144  # images of the target's own, which its drafter learns from


def run_program(command: Sequence[str]) -> int:
    """Runs a program to its end -> its status. At Ctrl-C, which reaches it too, it may save before it ends."""
    with subprocess.Popen(command) as process:
        former = signal.signal(signal.SIGINT, signal.SIG_IGN)  # of this process alone
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, former)


def parts(share: float = 1) -> dict[str, tuple[str, ...]]:
    """Settings of `train.py` by part, in the order of what they read. Lengths are steps, so that a slower machine, or
    one that does other work, trains the same weights later. share: factor on the number of images that the
    target draws, and on the steps of all parts but the critic and the tokenizer. LanternError unless it is above 0."""
    if not 0 < share < float("inf"):
        raise LanternError(f"--share {share} of the schedule trains nothing; give 1 for all of it, 0.25 for a quarter")

    def steps(number: int) -> tuple[str, str]:
        return "trainer.max_time=null", f"trainer.max_steps={max(1, round(share * number))}"

    return {
        "critic": ("task=critic", "trainer.max_steps=600"),
        STEM: ("task=tokenizer", "trainer.max_steps=4000", "trainer.val_check_interval=4000"),
        "tokenizer": ("task=decoder", f"task.start_from=${{paths.weights}}/{STEM}"),
        "target": ("task=target", "rendered.num_train=36000", *steps(3200)),
        "drafter": (
            "task=drafter_self", "recipe=layered", "recipe.unroll_from=0.5", "trainer.val_check_interval=1000",
            f"data.num_train={max(1, round(NUM_DRAWN * share))}", *steps(12000),
        ),
        "target_continuous": ("task=target_continuous", *steps(1400)),
    }  # fmt: skip


def run(
    folder: Path, schedule: Mapping[str, Sequence[str]], train: Sequence[str] = TRAIN,
    halved: Mapping[str, str] = HALVED,
) -> Path:  # fmt: skip
    """Trains the parts of a schedule that folder/weights lacks, part p in folder/p; returns folder/weights. `train`:
    the command that takes their settings; halved: as HALVED. LanternError if one fails."""
    weights = folder / "weights"
    weights.mkdir(parents=True, exist_ok=True)
    for name, settings in schedule.items():
        if (weights / name).is_dir():
            continue
        given = {"paths.weights": weights, "paths.cache_dir": folder / "cache", "hydra.run.dir": folder / name}
        places = [override(key, path) for key, path in given.items()]
        print(f"{name}: train.py {shlex.join(settings)}", flush=True)
        if status := run_program([*train, *settings, *places]):
            raise LanternError(
                f"the training of {name} ended with status {status}, see {folder / name}/train.log; the same command "
                "goes on from there"
            )
        keep(folder / name / exported_by(settings), weights / name, halved.get(name))
    return weights


def exported_by(settings: Sequence[str]) -> str:
    """The name of the folder that train.py exports to: that of its task, on whichever images; of a decoder the whole
    tokenizer."""
    task = next(value for key, _, value in (setting.partition("=") for setting in settings) if key == "task")
    return {"decoder": "tokenizer"}.get(task, task.removesuffix("_self"))


def keep(exported: Path, place: Path, halved: str | None = None) -> None:
    """Copies exported weights, whole or not at all. halved: the start of the names of weights that are stored in half
    precision; None: of none."""
    partial = place.with_name(f".{place.name}")
    shutil.rmtree(partial, ignore_errors=True)  # of a command that was stopped while copying
    shutil.copytree(exported, partial)
    if halved is not None:
        state, config = load_weights(exported)
        half = {name: value.half() if name.startswith(halved) else value for name, value in state.items()}
        save_weights(partial, half, config)
    partial.rename(place)


def main() -> None:
    """python -m tools.weights <folder> [--share 0.25]; prints the size of every part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="of the schedule; finished parts keep theirs")
    given = parser.parse_args()
    try:
        schedule = parts(given.share)
        weights = run(given.folder.resolve(), schedule)
    except LanternError as error:
        sys.exit(str(error))
    sizes = {part: (weights / part / "model.safetensors").stat().st_size / 1e6 for part in schedule if part != STEM}
    for part, size in sizes.items():
        print(f"{weights / part}  {size:.1f} MB")
    print(f"{sum(sizes.values()):.1f} MB in all; to ship them, copy these folders to data/weights")


if __name__ == "__main__":
    main()
