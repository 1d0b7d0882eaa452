"""Image files or bytes to square RGB arrays: rotated upright, transparency on white, centre-cropped, resized."""

import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from lantern.errors import LanternError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def load_image(source: str | Path | bytes, size: int) -> np.ndarray:
    """uint8 [size, size, 3]. Raises any of Pillow's errors; problem_of catches them."""
    with _opened(source) as opened:
        opened.draft("RGB", (2 * size, 2 * size))  # a huge JPEG is decoded at a fraction of its size
        image = ImageOps.exif_transpose(opened)
        if image.mode == "F":
            raise LanternError("its pixels are floating-point numbers, of no known range; save it with 8 or 16 bits")
        if image.mode.startswith("I"):  # grey, which convert() would clip instead of scale
            image = Image.fromarray(_eight_bits(np.asarray(image), image.mode))
        if "A" in image.getbands() or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.asarray(ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.LANCZOS))


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


def _opened(source: str | Path | bytes) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # above twice that size Pillow raises an error
        return Image.open(BytesIO(source) if isinstance(source, bytes) else source)
