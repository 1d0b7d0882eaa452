"""A folder of one's own captioned images: `ImageFolder(...).split("train")[i]` -> {"image": uint8 [size, size, 3],
"caption"}. Captions stand in metadata.jsonl (file_name, text) or in a .txt beside each image."""

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Value
from PIL import Image, ImageOps, UnidentifiedImageError

from lantern.data.cache import cached_rows, fingerprint
from lantern.data.scene_splits import StoredSplit
from lantern.errors import LanternError

SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
FEATURES = Features({name: Value("string") for name in ("file", "caption", "problem")} | {"image": Value("binary")})
NAMES_SHOWN = 10
UNREADABLE = (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError)
log = logging.getLogger(__name__)


class ImageFolder:
    """Images cropped to their central square and resized, once, into `cache_dir`; what cannot be used is skipped,
    counted and listed in `skipped`. A file's name decides its split, so that adding files moves none."""

    def __init__(
        self, folder: str, size: int, cache_dir: str, validation_share: float = 0.1, num_workers: int = 2
    ) -> None:
        items = [(file, caption, size) for file, caption in find_images(Path(folder))]
        stamps = [(file, Path(file).stat().st_size, Path(file).stat().st_mtime_ns) for file, _, _ in items]
        self.fingerprint = fingerprint(items, stamps)
        target = Path(cache_dir) / f"images-{self.fingerprint}"
        self.rows = cached_rows(target, _rows, items, FEATURES, num_workers)
        self.folder, self.size, self.validation_share = folder, size, validation_share
        self.skipped = _skipped(self.rows)
        _report(self.skipped, len(items), folder)

    def split(self, name: str) -> StoredSplit:
        """train or validation; LanternError if no image falls into it."""
        if name not in ("train", "validation"):
            raise LanternError(f"an image folder has no split {name!r}; use train or validation")
        chosen = [
            i
            for i, (file, problem) in enumerate(zip(self.rows["file"], self.rows["problem"], strict=True))
            if not problem and (_position(Path(file).name) < self.validation_share) == (name == "validation")
        ]
        if not chosen:
            raise LanternError(f"no image of {self.folder} falls into {name}; add images or set data.validation_share")
        split_fingerprint = fingerprint(self.fingerprint, name, self.validation_share)
        return StoredSplit(self.rows.select(chosen).remove_columns(["file", "problem"]), self.size, split_fingerprint)


def find_images(folder: Path) -> list[tuple[str, str]]:
    """Files and captions ("" where none was found), in the order of their names; LanternError if there are none."""
    if not folder.is_dir():
        raise LanternError(f"no folder {folder}; name a folder of images with data.folder=...")
    captions = _read_metadata(folder / "metadata.jsonl")
    files = {file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file()}
    if not files:
        raise LanternError(f"no images in {folder}; put files ending in {' '.join(sorted(SUFFIXES))} there")
    return [(str(file), captions.get(file) or _caption_beside(file)) for file in sorted(files)]


def _read_metadata(path: Path) -> dict[Path, str]:
    if not path.is_file():
        return {}
    captions = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if line.strip():
            try:
                record = json.loads(line)
                captions[path.parent / record["file_name"]] = str(record["text"]).strip()
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                wanted = '{"file_name": "a.png", "text": "a caption"}'
                raise LanternError(f"{path} line {number} is {line[:80]!r}; write {wanted}") from error
    return captions


def _caption_beside(file: Path) -> str:
    text = file.with_suffix(".txt")
    return text.read_text(encoding="utf-8", errors="replace").strip() if text.is_file() else ""


def load_image(file: str, size: int) -> np.ndarray:
    """uint8 [size, size, 3]: upright, on white where transparent, cropped to its central square, resized."""
    with Image.open(file) as opened:
        image = ImageOps.exif_transpose(opened)
        if image.mode.startswith("I"):  # 16-bit grey, which convert() would clip instead of scale
            image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
        if "A" in image.getbands() or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.asarray(ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.LANCZOS))


def _rows(items: list[tuple[str, str, int]]) -> Iterator[dict[str, Any]]:
    for file, caption, size in items:
        image, problem = b"", "" if caption else "no caption"
        if caption:
            try:
                image = load_image(file, size).tobytes()
            except UNREADABLE as error:
                problem = str(error) or type(error).__name__
        yield {"file": file, "caption": caption, "problem": problem, "image": image}


def _skipped(rows: Dataset) -> dict[str, str]:
    """What is wrong, by file."""
    return {file: problem for file, problem in zip(rows["file"], rows["problem"], strict=True) if problem}


def _report(skipped: dict[str, str], num_files: int, folder: str) -> None:
    if not skipped:
        return
    shown = "; ".join(f"{file}: {problem}" for file, problem in list(skipped.items())[:NAMES_SHOWN])
    more = f"; and {len(skipped) - NAMES_SHOWN} more" if len(skipped) > NAMES_SHOWN else ""
    if len(skipped) == num_files:
        raise LanternError(f"none of the {num_files} images in {folder} can be used: {shown}{more}")
    log.warning("skipped %d of %d images in %s: %s%s", len(skipped), num_files, folder, shown, more)


def _position(name: str) -> float:
    """Where a file name falls in [0, 1)."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6]) / 2**48
