"""A user's images and captions as files hold them. Images become RGB arrays: rotated upright, transparency on white,
centre-cropped to a square, resized. Captions are texts, or the numbers of classes."""

import warnings
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from lantern.errors import LanternError, is_whole

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
CAPTION_KEYS = ("caption", "text", "prompt")  # of a record, in this order


def load_image(source: str | Path | bytes, size: int | None) -> np.ndarray:
    """uint8 [size, size, 3], or of its own height and width for size=None. Raises any of Pillow's errors; problem_of
    catches them."""
    with _open(source) as opened:
        if size:
            opened.draft("RGB", (2 * size, 2 * size))  # a huge JPEG is decoded at a fraction of its size
        image = ImageOps.exif_transpose(opened)
        if image.mode == "F":
            raise LanternError("its pixels are floating-point numbers, of no known range; save it with 8 or 16 bits")
        if image.mode.startswith("I"):  # grey, which convert() would clip instead of scale
            image = Image.fromarray(_eight_bits(np.asarray(image), image.mode))
        if "A" in image.getbands() or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        image = image.convert("RGB")
        return np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.LANCZOS) if size else image)


def _open(source: str | Path | bytes) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # above twice that size Pillow raises an error
        return Image.open(BytesIO(source) if isinstance(source, bytes) else source)


def _eight_bits(grey: np.ndarray, mode: str) -> np.ndarray:
    """Values of 16 bits scaled. A file of 32 bits does not say how many of them it uses: 8 where none is larger."""
    shift = 8 if mode.startswith("I;16") or grey.max() > 255 else 0
    return (grey >> shift).clip(0, 255).astype(np.uint8)


def problem_of(source: str | Path | bytes, size: int) -> str:
    """The reason why the source cannot be decoded; "" if it can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # files with warnings that decode are used
        try:
            load_image(source, size)
        except Exception as error:  # decoders raise struct.error, IndexError and others on damaged files
            return str(error) or type(error).__name__
    return ""


def read_bytes(file: str, start: int, size: int) -> bytes:
    """`size` bytes from `start`; all the rest where size is -1."""
    with open(file, "rb") as opened:
        opened.seek(start)
        return opened.read(size)


def decode_text(content: bytes) -> str:
    """UTF-8 with or without a byte order mark, which would be a part of the first word."""
    return content.decode("utf-8-sig", errors="replace")


def caption_of(value: object, source: str | Path) -> str:
    """A text without spaces around it, a class's number as text; "" for None."""
    if value is None or isinstance(value, str):
        return (value or "").strip()
    if is_whole(value):
        return str(value)
    raise LanternError(f"{source} has the caption {str(value)[:80]}; give a text for each image, or a class's number")


def caption_in(record: object, source: str | Path) -> str:
    """The first caption of a record that has one under CAPTION_KEYS, else ""."""
    values = [record.get(key) for key in CAPTION_KEYS] if isinstance(record, Mapping) else []
    return next(filter(None, (caption_of(value, source) for value in values)), "")
