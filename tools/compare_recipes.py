"""python -m tools.compare_recipes <sweep folder> [--decode [setting of evaluate.py …]]: compares the drafters that
`train.py +sweep=recipe` has trained. Writes recipes.csv, a row a drafter, and curves.png into the sweep's folder.
--decode first runs `evaluate.py +sweep=drafters` with every drafter; finished decodings are not repeated."""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lantern.drafters.export import exported_step
from lantern.errors import LanternError
from lantern.evaluation.rows import Row, is_baseline, read_summary
from lantern.models.checkpoints import load_weights, weights_file
from lantern.reporting.merge import point_folders
from lantern.reporting.plots import load_pyplot, save_figure
from lantern.reporting.table import write_csv
from lantern.runtime.home import program_of
from lantern.runtime.overrides import override
from tools.weights import run_program

DRAFTER, DECODED = "drafter", "decoded"  # subfolders of a run: weights, and the sweep that decoded with them
VALIDATION, TIME = "val/", "time/"
FIGURES = {"val/sim_accept_len": "length, ratio verification", "val/sim_agree_len": "length, shared noise"}


def run_folders(sweep: Path) -> list[Path]:
    """The finished training runs of a sweep, named recipe-seed."""
    found = [path.parent for path in sweep.glob(f"*-*/{DRAFTER}") if weights_file(path).is_file()]
    return sorted(path for path in found if path.name.rpartition("-")[2].isdecimal())


def name_of(folder: Path) -> tuple[str, int]:
    """Recipe and seed of a run."""
    recipe, _, seed = folder.name.rpartition("-")
    return recipe, int(seed)


def decode(folder: Path, settings: Sequence[str]) -> None:
    """Decodes with a run's drafter in the ways of conf/sweep/drafters.yaml. settings: of evaluate.py; a model other
    than the default has to be named as in the training."""
    places = [override("drafter.checkpoint", folder / DRAFTER), override("hydra.sweep.dir", folder / DECODED)]
    if run_program([*program_of("evaluate.py")[0], "+sweep=drafters", "tracking.mode=disabled", *settings, *places]):
        raise LanternError(f"decoding with {folder / DRAFTER} has failed, see above; the same command goes on")


def validations(folder: Path) -> list[dict[str, float]]:
    """The validations of a run, by step. Where it was killed and resumed, those of the later part count."""
    lines: list[dict[str, float]] = []
    for path in metrics_files(folder):
        if new := list(_read_validations(path)):
            lines = [line for line in lines if line["step"] < new[0]["step"]] + new
    return lines


def metrics_files(run: Path) -> list[Path]:
    """The metrics-N.csv of a run's earlier starts, in their order, then metrics.csv, as far as they are there."""
    earlier = [path for path in run.glob("metrics-*.csv") if path.stem.rpartition("-")[2].isdecimal()]
    earlier.sort(key=lambda path: int(path.stem.rpartition("-")[2]))
    return [path for path in (*earlier, run / "metrics.csv") if path.is_file()]


def _read_validations(path: Path) -> Iterator[dict[str, float]]:
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            if any(value and key.startswith(VALIDATION) for key, value in line.items()):
                yield {key: float(value) for key, value in line.items() if value}


def run_row(folder: Path) -> Row:
    """Size, time, the validation whose weights were exported, and tokens a step of every way that was decoded in."""
    recipe, seed = name_of(folder)
    lines = validations(folder)
    steps, exported = lines[-1][f"{TIME}steps"], exported_step(folder / DRAFTER)
    row: Row = {"recipe": recipe, "seed": seed, "steps": steps, "step_s": lines[-1][f"{TIME}training_s"] / steps}
    row["parameters"] = sum(value.numel() for value in load_weights(folder / DRAFTER)[0].values())
    row["exported_step"] = exported.get("step")
    row |= {key.removeprefix(VALIDATION): value for key, value in exported.get("figures", {}).items()}
    for point in point_folders(folder / DECODED):
        for decoded in read_summary(point):
            if not is_baseline(decoded):
                way = decoded.get("method") or f"{decoded['tree']}_{decoded['verification']}"
                row |= {f"{key}/{way}": decoded[key] for key in ("tokens_per_step", "draft_ms")}
    return row


def draw_curves(folders: Sequence[Path], path: Path) -> None:
    """A panel for each of FIGURES over minutes of training, a colour for each recipe, a line for each run."""
    figure, panels = load_pyplot().subplots(1, len(FIGURES), figsize=(5.2 * len(FIGURES), 3.6), dpi=130)
    colours: dict[str, str] = {}
    for folder in folders:
        lines, (recipe, _) = validations(folder), name_of(folder)
        label = None if recipe in colours else recipe
        colour = colours.setdefault(recipe, f"C{len(colours)}")
        for panel, key in zip(panels, FIGURES, strict=True):
            minutes = [line[f"{TIME}training_s"] / 60 for line in lines]
            panel.plot(minutes, [line[key] for line in lines], ".-", color=colour, lw=1, ms=3, label=label)
    for panel, title in zip(panels, FIGURES.values(), strict=True):
        panel.set_xlabel("minutes of training, validation left out")
        panel.set_ylabel(title)
        panel.grid(alpha=0.25, lw=0.5)
    panels[0].legend(fontsize=7, frameon=False)
    save_figure(figure, path)


def main(arguments: Sequence[str]) -> None:
    """Compares the runs of a sweep."""
    parser = argparse.ArgumentParser(prog="python -m tools.compare_recipes", description=__doc__)
    parser.add_argument("sweep", type=Path, help="hydra.sweep.dir of +sweep=recipe")
    parser.add_argument("--decode", nargs="*", metavar="setting", help="decodes with every drafter first")
    given = parser.parse_args(arguments)
    folders = run_folders(given.sweep)
    if not folders:
        raise LanternError(f"{given.sweep} holds no finished run; give the hydra.sweep.dir of train.py +sweep=recipe")
    if given.decode is not None:
        for folder in folders:
            decode(folder, given.decode)
    write_csv([run_row(folder) for folder in folders], given.sweep / "recipes.csv")
    draw_curves(folders, given.sweep / "curves.png")
    print(f"{given.sweep}/recipes.csv and curves.png: {len(folders)} drafters")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LanternError as error:
        sys.exit(f"error: {error}")
