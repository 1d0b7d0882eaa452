"""`python -m lantern.studies.endurance [folder]`: an evaluation of 10,000 images and a training of 20,000 steps of a
miniature, sampled while they run: do memory, open files, threads and speed stay as they are in the first tenth?"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from lantern.errors import LanternError
from lantern.evaluation.records import RECORDS
from lantern.evaluation.rows import append_rows, read_rows
from lantern.runtime.home import CHECKOUT
from lantern.runtime.overrides import override
from lantern.runtime.programs import program_of
from lantern.studies.markdown import table_lines
from lantern.studies.miniature import PIXELS_PER_TOKEN, write_captioned_scenes, write_tiny_weights
from lantern.studies.process_samples import Sample, Verdict, folder_bytes, sample, verdicts

SIDE = 4  # tokens of a row of an image
IMAGES, STEPS = 10_000, 20_000
LOG_EVERY = 10  # steps
EVERY_S = 1.0
DRAWN_PARTS = 20  # of the work, whose speeds are drawn
LABELS = {
    "memory_mb": "resident memory, MB",
    "files": "open files",
    "threads": "threads",
    "per_cpu_s": "{} per CPU second",
}


class Work(NamedTuple):
    """A command, what it counts, and how many of them are done in a run folder."""

    command: Sequence[str]
    unit: str
    total: int
    done: Callable[[Path], int]


def evaluation(inputs: Path, number: int) -> Work:
    """Images of the method, after as many of plain decoding; both are judged at the end."""
    settings = (
        f"paths.weights={inputs}/weights", "device=cpu", "dtype=float32", "speed.num_prompts=0",
        f"quality.num_images={number}", "batch_size=25", "output_tv.num_positions=0",
        "metrics=[accuracy]",
    )  # fmt: skip
    return Work(("evaluate.py", *settings), "images", number, LineCount(RECORDS))


def training(inputs: Path, number: int) -> Work:
    """Steps of a drafter, with a validation and a checkpoint now and then."""
    settings = (
        "data=imagefolder", f"data.folder={inputs}/images", f"data.size={PIXELS_PER_TOKEN * SIDE}",
        f"paths.weights={inputs}/weights", f"paths.cache_dir={inputs}/cache", "trainer.accelerator=cpu",
        "dtype=float32", "trainer.max_time=null", f"trainer.max_steps={number}", "batches.batch_size=2",
        f"trainer.val_check_interval={max(1, number // 20)}", "batches.splits.validation.num_images=8",
        "callbacks.latest.train_time_interval.minutes=1", f"trainer.log_every_n_steps={LOG_EVERY}",
        "+logger.csv.flush_logs_every_n_steps=1",
    )  # fmt: skip
    return Work(("train.py", *settings), "steps", number, LineCount("metrics.csv", lines_per=1 / LOG_EVERY))


class LineCount:
    """Counts the lines of growing files, each byte read once."""

    def __init__(self, pattern: str, lines_per: float = 1.0) -> None:
        """lines_per: lines for each image or step."""
        self._pattern, self._lines_per = pattern, lines_per
        self._read: dict[Path, tuple[int, int]] = {}  # bytes and lines

    def __call__(self, folder: Path) -> int:
        for path in folder.glob(self._pattern):
            start, lines = self._read.get(path, (0, 0))
            with path.open("rb") as file:
                file.seek(start)
                content = file.read()
            self._read[path] = start + len(content), lines + content.count(b"\n")
        return round(sum(lines for _, lines in self._read.values()) / self._lines_per)


def watch(work: Work, folder: Path, every_s: float = EVERY_S) -> list[Sample]:
    """Runs the command in a folder to its end, W&B offline, and returns the samples, also in samples.jsonl.
    LanternError if it fails."""
    if folder.exists():
        raise LanternError(f"{folder} is of a study that was stopped, whose samples would have a gap; remove it")
    folder.mkdir(parents=True)
    script, *settings = work.command
    command = [*program_of(script)[0], *settings, override("hydra.run.dir", folder / "run")]
    samples: list[Sample] = []
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"WANDB_MODE": "offline"})
        while process.poll() is None:
            try:
                samples.append(sample(process.pid, min(work.done(folder / "run"), work.total), folder / "run"))
            except (FileNotFoundError, ProcessLookupError):
                break
            time.sleep(every_s)
    if process.wait():
        raise LanternError(f"{script} ended with status {process.returncode}, see {folder}/log")
    append_rows(folder / "samples.jsonl", (one._asdict() for one in samples))
    return samples


def working(samples: Sequence[Sample], total: int) -> list[Sample]:
    """The samples between the first image or step and the last; a later one has processor time of the report."""
    return [one for one in samples if 0 < one.done < total]


def report(work: Work, found: Sequence[Verdict], folder: Path) -> str:
    """The verdicts as a table in Markdown, with the size of the folder."""
    titles = ("", "first tenth", "middle", "last tenth", f"slope per 1,000 {work.unit}", "")
    lines = [f"{work.total:,} {work.unit}", "", *table_lines(titles, (_cells(one, work.unit) for one in found))]
    size, offline = folder_bytes(folder / "run"), folder_bytes(folder / "run", lambda path: "wandb" in path.parts)
    lines += ["", f"run folder {size / 2**20:.1f} MB, of it W&B {offline / 2**20:.1f} MB"]
    return "\n".join(lines)


def _cells(one: Verdict, unit: str) -> tuple[str, ...]:
    state = "flat" if one.is_flat else "NOT FLAT"
    tenths = (f"{value:.4g}" for value in (one.first, one.middle, one.last))
    return (LABELS[one.name].format(unit), *tenths, f"{round(one.slope, 2):+g}", state)


def draw(works: Sequence[Work], all_samples: Sequence[Sequence[Sample]], path: Path) -> None:
    """A row of panels a command: memory, files and threads, speed, size of the folder, over the work done."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, rows = plt.subplots(len(works), 4, figsize=(15, 3.2 * len(works)), dpi=110, squeeze=False)
    for axes, work, kept in zip(rows, works, all_samples, strict=True):
        done = [one.done for one in kept]
        axes[0].plot(done, [one.memory_mb for one in kept])
        axes[1].plot(done, [one.files for one in kept], label="open files")
        axes[1].plot(done, [one.threads for one in kept], label="threads")
        axes[1].legend()
        pairs = [(b.done, (b.done - a.done) / (b.cpu_s - a.cpu_s)) for a, b in _parts(kept) if b.cpu_s > a.cpu_s]
        axes[2].plot(*zip(*pairs, strict=True), marker="o")
        axes[3].plot(done, [one.folder_mb for one in kept])
        titles = ("resident memory, MB", "files and threads", f"{work.unit} per CPU second", "run folder, MB")
        for panel, title in zip(axes, titles, strict=True):
            panel.set(title=title, xlabel=work.unit, ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _parts(samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """The first and last sample of each of DRAWN_PARTS parts of equal time."""
    marks = [samples[round(i * (len(samples) - 1) / DRAWN_PARTS)] for i in range(DRAWN_PARTS + 1)]
    return list(pairwise(marks))


def study(folder: Path, images: int, steps: int, every_s: float = EVERY_S) -> bool:
    """Runs what the folder lacks, writes report.md and endurance.png; whether everything is flat."""
    inputs = folder / "inputs"
    if not inputs.is_dir():
        inputs.mkdir(parents=True)
        write_tiny_weights(inputs / "weights", SIDE)
        write_captioned_scenes(inputs / "images", 64, SIDE)
    works = {"evaluation": evaluation(inputs, images), "training": training(inputs, steps)}
    found = []
    for name, work in works.items():
        kept = folder / name / "samples.jsonl"
        rows = [Sample(**row) for row in read_rows(kept)] if kept.is_file() else watch(work, folder / name, every_s)
        found.append(working(rows, work.total))
    draw(list(works.values()), found, folder / "endurance.png")
    judged = [verdicts(samples) for samples in found]
    parts = [report(work, own, folder / name) for (name, work), own in zip(works.items(), judged, strict=True)]
    (folder / "report.md").write_text("\n\n".join(parts) + "\n")
    print("\n\n".join(parts))
    return all(one.is_flat for own in judged for one in own)


def main() -> None:
    """Status 1 if anything grows."""
    folder = Path(sys.argv[1] if sys.argv[1:] else CHECKOUT / "runs" / "endurance").resolve()
    try:
        flat = study(folder, IMAGES, STEPS)
    except LanternError as error:
        sys.exit(f"error: {error}")
    sys.exit(int(not flat))


if __name__ == "__main__":
    main()
