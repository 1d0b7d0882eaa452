"""A second world, which nobody here drew: six sets of emoji, as packages of the npm registry hold them, drawn into a
folder of images with captions like any user's, and the models trained on it: `make world`. Drawing needs resvg-py."""

import argparse
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from lantern.errors import LanternError
from lantern.runtime.files import replace_text
from lantern.runtime.overrides import override
from tools.weights import STEM, keep, run

STUDIOS = {  # word of the captions: package, version, the first digits of its SHA-256, licence
    "noto": ("noto", "1.2.9", "3e918d88fc945c0b", "Apache 2.0, Google"),
    "blob": ("noto-v1", "1.2.5", "2bf62c26c2c2884a", "Apache 2.0, Google"),
    "fluent": ("fluent-emoji", "1.2.7", "8044210dbf11e016", "MIT, Microsoft"),
    "flat": ("fluent-emoji-flat", "1.2.6", "7d064769dee69081", "MIT, Microsoft"),
    "twemoji": ("twemoji", "1.2.5", "19046dff7d8707ce", "CC BY 4.0, Twitter"),
    "emojione": ("emojione", "1.2.3", "26a14f44284407e8", "CC BY 4.0, JoyPixels"),
}  # fmt: skip
FIRST = "drafter_first"  # the drafter before its second training, which is not shipped
PROMPTS, LAST = "held_out.txt", "metadata.jsonl"  # in the folder of pictures; the last one is written last
SIZE = 128
BOX = {"left": 0, "top": 0, "width": 16, "height": 16}  # of an icon, as Iconify's format has it by default
MARGIN = 1 / 16  # of a picture's width, left white around it
SIZES = {"3M": (160, 6), "9M": (256, 8), "43M": (512, 12)}  # width and layers of targets, named by their parameters
HELD_OUT = 0.3  # of the names that three studios or more have drawn: one of their pictures is kept for validation


def fetch(package: str, version: str, sha256: str) -> dict:
    """The icons of a package: {"icons": {name: {"body": SVG, …}}, "width", "height"}."""
    name = f"@iconify-json/{package}@{version}"  # in the registry that npm is set to
    with TemporaryDirectory() as folder:
        program = ["npm", "pack", name, "--silent", "--pack-destination", folder]
        try:
            done = subprocess.run(program, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise LanternError(f"npm, which fetches {name}, is not installed; install Node.js") from error
        if done.returncode:
            raise LanternError(f"npm pack {name} failed: {done.stderr.strip()}")
        content = next(Path(folder).glob("*.tgz")).read_bytes()
    if not hashlib.sha256(content).hexdigest().startswith(sha256):
        raise LanternError(f"{name} is not the file that was tried; compare its licence and pictures, then its hash")
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        return json.load(files.extractfile("package/icons.json"))


def draw(icon: dict, icons: dict) -> bytes | None:
    """The PNG of an icon; None of one that the library cannot draw."""
    import resvg_py

    left, top, width, height = (icon.get(key, icons.get(key, default)) for key, default in BOX.items())
    across, down = MARGIN * width, MARGIN * height
    box = f"{left - across} {top - down} {width + 2 * across} {height + 2 * down}"
    head = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    svg = f'<svg {head} width="{SIZE}" height="{SIZE}" viewBox="{box}">{icon["body"]}</svg>'
    try:
        return bytes(resvg_py.svg_to_bytes(svg_string=svg, background="#ffffff", width=SIZE, height=SIZE))
    except BaseException as error:  # a panic of its Rust is no Exception
        if type(error).__name__ == "PanicException":
            return None
        raise


def is_tone(name: str, names: Iterable[str]) -> bool:
    """Whether it is another in one tone of skin: "man-fairy-dark" beside "man-fairy"."""
    tone = re.search(r"-tone|-skin|-(medium-)?(light|dark)$|-medium$", name)
    return bool(tone) and ("-tone" in name or "-skin" in name or name[: tone.start()] in names)


def split_of(name: str, studio: str, studios: list[str]) -> str:
    """Where a picture belongs: a name that is held out is known from other studios, and the studio from other names."""
    digest = hashlib.sha256(name.encode()).digest()
    is_held_out = len(studios) >= 3 and digest[0] < 256 * HELD_OUT and studio == studios[digest[1] % len(studios)]
    return "validation" if is_held_out else "train"


def pictures() -> Iterator[tuple[str, str, bytes]]:
    """Place, caption and PNG of each. Variants in other tones of skin, a third of all, are left out."""
    packages = {studio: fetch(*package[:3]) for studio, package in STUDIOS.items()}
    by_name: dict[str, list[str]] = {}
    for studio, icons in packages.items():
        for name in icons["icons"]:
            if not is_tone(name, icons["icons"]):
                by_name.setdefault(name, []).append(studio)
    for name, studios in sorted(by_name.items()):
        for studio in studios:
            icons = packages[studio]
            place = f"{split_of(name, studio, studios)}/{studio}/{name}.png"
            if png := draw(icons["icons"][name], icons):
                yield place, f"{studio} {name.replace('-', ' ')}", png


def write_pictures(folder: Path) -> None:
    """All pictures with their captions; the licences beside them; the captions that are held out, as prompts."""
    lines = []
    for place, caption, png in pictures():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png)
        lines.append({"file_name": place, "caption": caption})
    held_out = [line["caption"] for line in lines if line["file_name"].startswith("validation/")]
    held_out.sort(key=lambda caption: hashlib.sha256(caption.encode()).digest())  # the first ones are of any name
    licences = [
        f"{studio}: {package} {version} of the npm registry, {licence}"
        for studio, (package, version, _, licence) in STUDIOS.items()
    ]
    replace_text(folder / "LICENCES.txt", "\n".join(licences) + "\n")
    replace_text(folder / PROMPTS, "\n".join(held_out) + "\n")
    replace_text(folder / LAST, "".join(json.dumps(line) + "\n" for line in lines))
    print(f"{len(lines)} pictures in {folder}, {len(held_out)} of them held out")


def parts(
    pictures: Path, dim: int = 256, layers: int = 8, steps_of_target: int = 2600, drawn: int = 6144,
    steps_of_drafter: int = 5000,
) -> dict[str, tuple[str, ...]]:  # fmt: skip
    """Settings of `train.py` by part, as of tools.weights: nothing in them knows emoji but the folder. drawn: images of
    the target's own that the drafter learns from."""
    data = "data=imagefolder", override("data.folder", pictures)

    def steps(number: int) -> tuple[str, str]:
        return "trainer.max_time=null", f"trainer.max_steps={number}"

    drafter = (
        "task=drafter_self", *data, "recipe=layered", f"samples.num_images={drawn}", *steps(steps_of_drafter),
        f"trainer.val_check_interval={min(1000, steps_of_drafter)}",
    )  # fmt: skip
    return {
        STEM: ("task=tokenizer", *data, *steps(3000), "trainer.val_check_interval=3000"),
        "tokenizer": (
            "task=decoder", *data, f"task.start_from=${{paths.weights}}/{STEM}", *steps(1000),
            "trainer.val_check_interval=1000",
        ),
        "target": (
            "task=target", *data, f"task.architecture.dim={dim}", f"task.architecture.num_layers={layers}",
            "task.architecture.prefix_len=12", *steps(steps_of_target),
        ),
        FIRST: (*drafter, "recipe.unroll_from=0.5"),
        "drafter": (
            *drafter, f"task.start_from=${{paths.weights}}/{FIRST}", "recipe.unroll_from=0", "task.seed=1",
            "batches.seed=1",
        ),
    }  # fmt: skip


def train_sizes(folder: Path) -> None:
    """Targets of three sizes behind the same tokenizer, each trained on every picture once, and a drafter of each by an
    equal schedule: folder/sizes/<size>/weights."""
    for size, (dim, layers) in SIZES.items():
        place = folder / "sizes" / size
        if not (tokenizer := place / "weights" / "tokenizer").is_dir():
            tokenizer.parent.mkdir(parents=True, exist_ok=True)
            keep(folder / "weights" / "tokenizer", tokenizer)
        schedule = parts(folder / "pictures", dim, layers, steps_of_target=575, drawn=768, steps_of_drafter=600)
        run(place, {"target": schedule["target"], "drafter": schedule[FIRST]})


def main() -> None:
    """python -m tools.emoji <folder>; pictures and weights go into folders of it, and a stopped command goes on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures-only", action="store_true", help="trains nothing")
    parser.add_argument("--sizes", action="store_true", help="also trains targets of 3, 9 and 43 million parameters")
    given = parser.parse_args()
    folder = given.folder.resolve()
    if not (folder / "pictures" / LAST).is_file():
        write_pictures(folder / "pictures")
    if given.pictures_only:
        return
    print(run(folder, parts(folder / "pictures")))
    if given.sizes:
        train_sizes(folder)


if __name__ == "__main__":
    try:
        main()
    except (LanternError, OSError, ImportError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
