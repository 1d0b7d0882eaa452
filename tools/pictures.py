"""python -m tools.pictures <folder of make demo>: the pictures of its report in docs/, by a headless Chromium.
python -m tools.pictures grid <sweep> <sweep> <to>: the grid.png of sweeps, one above the other."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from lantern.errors import LanternError
from lantern.runtime.home import CHECKOUT

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
REPORTS = {"report.png": (960, 2512), "lab/report_phone.png": (390, 844)}  # in docs/, with the window's size
COLOURS = 128


def photograph(page: Path, size: tuple[int, int], to: Path) -> None:
    """Writes what a window of this size shows of a page. LanternError without a browser."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise LanternError(f"no browser was found; install one of {', '.join(BROWSERS)}")
    with TemporaryDirectory() as folder:
        shot = Path(folder, "shot.png")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/home"]
        options += ["--virtual-time-budget=4000", f"--screenshot={shot}", f"--window-size={size[0]},{size[1]}"]
        subprocess.run([browser, *options, page.resolve().as_uri()], check=True, capture_output=True, timeout=120)
        Image.open(shot).convert("RGB").quantize(COLOURS).save(to, optimize=True)


def stack(sweeps: Sequence[Path], to: Path) -> None:
    """One grid.png above the other, channels rounded to 7 bits."""
    grids = [Image.open(sweep / "grid.png").convert("RGB") for sweep in sweeps]
    whole = Image.new("RGB", (max(grid.width for grid in grids), sum(grid.height for grid in grids)), "white")
    for number, grid in enumerate(grids):
        whole.paste(grid, (0, sum(above.height for above in grids[:number])))
    whole.point([value & 254 for value in range(256)] * 3).save(to, optimize=True)


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["grid"] and len(arguments) > 2:
        stack([Path(folder) for folder in arguments[1:-1]], Path(arguments[-1]))
    elif len(arguments) == 1:
        for name, size in REPORTS.items():
            photograph(Path(arguments[0], "sweep", "report.html"), size, CHECKOUT / "docs" / name)
    else:
        raise LanternError(str(__doc__))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LanternError as error:
        sys.exit(f"error: {error}")
