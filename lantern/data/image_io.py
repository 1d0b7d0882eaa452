"""An image file or its bytes to a square of RGB: upright, on white where transparent, central square, resized."""

import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def load_image(source: str | Path | bytes, size: int) -> np.ndarray:
    """uint8 [size, size, 3]. Raises what Pillow raises; see problem_of."""
    with _opened(source) as opened:
        opened.draft("RGB", (2 * size, 2 * size))  # a huge JPEG is decoded at a fraction of its size
        image = ImageOps.exif_transpose(opened)
        if image.mode.startswith("I"):  # 16-bit grey, which convert() would clip instead of scale
            image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
        if "A" in image.getbands() or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.asarray(ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.LANCZOS))


def problem_of(source: str | Path | bytes, size: int) -> str:
    """Why these bytes make no image; "" where they do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is wrong and decodes all the same is used
        try:
            load_image(source, size)
        except Exception as error:  # on damaged files decoders raise whatever they meet: struct.error, IndexError, …
            return str(error) or type(error).__name__
    return ""


def _opened(source: str | Path | bytes) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # twice that size is an error, and reported
        return Image.open(BytesIO(source) if isinstance(source, bytes) else source)
