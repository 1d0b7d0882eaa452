"""The demo of a fresh clone: trains a drafter for a short time, decodes with it and the shipped one losslessly, beside
LANTERN with the shipped one, and says in plain words what came out. Both steps are commands of this repository, which
it prints."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lantern.cli.error_messages import in_one_sentence, without_hints
from lantern.errors import LanternError
from lantern.evaluation.rows import Row, is_baseline, merge_rows, read_summary
from lantern.runtime.home import CONFIG_FOLDER, override, program_of, run_program

SIZE_FILE = "demo_size.txt"  # in the demo's folder


@without_hints
@hydra.main(version_base="1.3", config_path=str(CONFIG_FOLDER), config_name="demo")
@in_one_sentence
def demo(cfg: DictConfig) -> None:
    """Trains, sweeps and prints a summary; goes on where a stopped demo was."""
    from lantern.models.checkpoints import local_hash, weights_file
    from lantern.reporting.merge import point_folders

    folder = Path(HydraConfig.get().runtime.output_dir)
    size = choose_size(cfg, folder)
    given = [text for text in HydraConfig.get().overrides.task if text.startswith("paths.")]
    place = [f"device={cfg.device}", f"dtype={cfg.dtype}", *given]
    if not weights_file(folder / "train" / "drafter").is_file():  # what an export writes last
        run_command(training_command(size, folder, place))
    run_command(sweep_command(size, folder, place))
    rows = merge_rows(row for point in point_folders(folder / "sweep") for row in read_summary(point))
    shipped = local_hash(str(Path(cfg.paths.weights) / "drafter"))
    print("\n" + "\n".join(summary(rows, size.training_s, shipped, folder)))


def choose_size(cfg: DictConfig, folder: Path) -> DictConfig:
    """The settings of demo.size."""
    if cfg.demo.size not in cfg.sizes:
        raise LanternError(f"demo.size={cfg.demo.size} is unknown; give one of {', '.join(cfg.sizes)}")
    record = folder / SIZE_FILE
    if record.is_file() and (other := record.read_text().strip()) in cfg.sizes and other != cfg.demo.size:
        raise LanternError(
            f"hydra.run.dir={folder} holds a demo of demo.size={other}, not {cfg.demo.size}; give another folder "
            "(RUN=… of make demo)"
        )
    record.write_text(f"{cfg.demo.size}\n")
    return cfg.sizes[cfg.demo.size]


def training_command(size: DictConfig, folder: Path, place: Sequence[str]) -> list[str]:
    """Distils a drafter from the frozen target. size: one of conf/demo.yaml; place: device and dtype."""
    minutes, seconds = divmod(size.training_s, 60)
    images, limit = f"rendered.num_train={size.training_images}", f"trainer.max_time=00:00:{minutes:02}:{seconds:02}"
    return ["train.py", "model=llamagen", *place, images, limit, override("hydra.run.dir", folder / "train")]


def sweep_command(size: DictConfig, folder: Path, place: Sequence[str]) -> list[str]:
    """Evaluates LANTERN and the lossless window with the shipped drafter, and the latter with the one just trained."""
    return [
        "evaluate.py", "+sweep=demo", *place,
        override("trained_drafter", folder / "train" / "drafter"),
        f"acceptance.delta={','.join(f'{delta:g}' for delta in size.deltas)}",
        f"speed.num_prompts={size.num_prompts}", f"quality.num_images={size.num_images}",
        override("hydra.sweep.dir", folder / "sweep"),
    ]  # fmt: skip


def run_command(command: Sequence[str]) -> None:
    """Prints a script with its settings and runs it in a process of its own."""
    script, *settings = command
    program, shown = program_of(script)
    print(f"\n$ {shlex.join([*shown, *settings])}", flush=True)
    if status := run_program([*program, *settings]):
        raise LanternError(f"{script} ended with status {status}, see above; started again, the demo goes on from here")


def summary(rows: Sequence[Row], training_s: int, shipped_hash: str, folder: Path) -> list[str]:
    """At most nine lines: the lossless settings, the fastest relaxed one and its price, and what to do next.
    shipped_hash: of the repository's drafter. The fastest is so by its lower bound."""
    from lantern.reporting.ranking import speed_rank
    from lantern.reporting.table import format_value

    methods = [row for row in rows if not is_baseline(row)]
    lossless = sorted((row for row in methods if row.get("lossless")), key=speed_rank, reverse=True)
    relaxed = sorted((row for row in methods if not row.get("lossless")), key=speed_rank, reverse=True)
    lines = [f"Trained: an EAGLE drafter for {training_s} s."]
    for number, row in enumerate(lossless):
        rank = "Also lossless" if number else "Fastest at no price"
        name, speedup = row.get("method") or row["drafter"], format_value(row, "speedup")
        lines.append(f"{rank}: {name}, {_owner(row, shipped_hash)} drafter, speed-up {speedup}.")
    if relaxed:
        best = relaxed[0]
        names = {"output_tv": "output TV", "frechet_diff": "Fréchet distance over plain decoding's"}
        prices = [f"{name} {format_value(best, key)}" for key, name in names.items() if best.get(key) is not None]
        lines.append(
            f"Relaxed: LANTERN δ = {best['delta']:g} on {best['tree']}, {_owner(best, shipped_hash)} drafter, speed-up "
            f"{format_value(best, 'speedup')}; price: {', '.join(prices) or 'not judged'}."
        )
        if lossless and speed_rank(lossless[0]) >= speed_rank(best):
            lines.append("Here relaxing bought no speed beyond the lossless method.")
    program = " ".join(program_of("evaluate.py")[1])
    return [
        *lines,
        f"Look at {folder}/sweep: report.html (with the acceptance map), pareto.png, grid.png, results.csv. Next:",
        f"  {program} +method=refined_jacobi speed.num_prompts=8    # the lossless row with narrower bounds",
        "  python -m lantern    # your prompt, decoded by two methods side by side in a local page",
        f"  {program} +sweep=field    # every method in one table",
    ]


def _owner(row: Row, shipped_hash: str) -> str:
    return "shipped" if row.get("drafter_hash") == shipped_hash else "trained"


if __name__ == "__main__":
    demo()
