"""A user's images and captions as files hold them. Images become RGB arrays: rotated upright, transparency on white,
centre-cropped to a square, resized. Captions are texts, or the numbers of classes."""

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from math import isnan
from pathlib import Path
from string import punctuation, whitespace

import numpy as np
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from lantern.data.text_tables import is_text, printable
from lantern.errors import LanternError, is_whole

READ = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif", ".jfif")
SUFFIXES = (*READ, ".heic", ".heif", ".jxl")  # of images; those that cannot be read are listed
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "AVIF", "PPM")  # EPS would start Ghostscript
SYSTEM_FOLDERS = ("__macosx", "@eadir", "#recycle", "$recycle.bin", "lost+found")
CAPTION_KEYS = ("caption", "text", "prompt")  # of a record, in this order
NAMES_SHOWN = 4
log = logging.getLogger(__name__)


def load_image(content: bytes, size: int | None, draft: int | None = None) -> np.ndarray:
    """uint8 [size, size, 3] in sRGB of an encoded image, or of its own height and width for size=None. draft: a huge
    JPEG may be decoded at a fraction of its size, at least so many pixels a side; faster, and other pixels than a PNG
    of it has. Raises any of Pillow's errors; problem_of catches them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # above twice that size Pillow raises an error
        try:
            opened = Image.open(BytesIO(content), formats=FORMATS)
        except UnidentifiedImageError as error:
            raise LanternError("it is no image, or one of a format that is not read") from error
    with opened:
        if draft:
            opened.draft(None, (draft, draft))
        image = ImageOps.exif_transpose(opened)
        profile = image.info.get("icc_profile")
        if image.mode == "F":
            raise LanternError("its pixels are floating-point numbers, of no known range; save it with 8 or 16 bits")
        if image.mode.startswith("I"):  # grey, which convert() would clip instead of scale
            image = Image.fromarray(_eight_bits(np.asarray(image), image.mode))
        alpha = None
        if "A" in image.getbands() or "transparency" in image.info:
            alpha = (image := image.convert("RGBA")).getchannel("A")
        image = _as_srgb(image, profile)
        if alpha:
            image.putalpha(alpha)
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
        return np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.LANCZOS) if size else image)


def _as_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """The colours of an image, without its transparency, by the ICC profile of its file. Without one, or with one that
    is damaged or of another colour space, they are taken for sRGB, as viewers do."""
    image = image if image.mode in ("L", "CMYK") else image.convert("RGB")
    if profile:
        with suppress(ImageCms.PyCMSError):
            return ImageCms.profileToProfile(image, BytesIO(profile), ImageCms.createProfile("sRGB"), outputMode="RGB")
    return image.convert("RGB")


def _eight_bits(grey: np.ndarray, mode: str) -> np.ndarray:
    """Values of 16 bits scaled. A file of 32 bits does not say how many of them it uses: 8 where none is larger."""
    shift = 8 if mode.startswith("I;16") or grey.max() > 255 else 0
    return (grey >> shift).clip(0, 255).astype(np.uint8)


def problem_of(read: Callable[[], bytes], size: int) -> str:
    """The reason why the encoded image that `read` returns cannot be decoded; "" if it can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # files with warnings that decode are used
        try:
            load_image(read(), size, 2 * size)
        except Exception as error:  # decoders raise struct.error, IndexError and others on damaged files
            return str(error) or type(error).__name__
    return ""


def is_hidden(name: str) -> bool:
    """Whether a file or folder is one of those that systems and editors make beside a user's images."""
    return (name.startswith(".") and name != "..") or name.lower() in SYSTEM_FOLDERS


def images_below(folder: str) -> set[Path]:
    """All image files below a folder. Links to folders are followed last and each folder only once: loops end, and a
    folder reached in two ways keeps its own name."""
    images, hidden, seen = set(), [], set()
    own, linked = [Path(folder)], list[Path]()  # folders still to be listed
    while own or linked:
        place = (own or linked).pop(0)
        if (real := os.path.realpath(place)) in seen:
            continue
        seen.add(real)
        try:
            entries = sorted(place.iterdir())
        except OSError as error:
            log.warning("%s cannot be listed (%s); its images were left out", printable(str(place)), error.strerror)
            continue
        for entry in entries:
            is_folder, is_image = entry.is_dir(), entry.suffix.lower() in SUFFIXES and entry.is_file()
            if is_hidden(entry.name) and (is_folder or is_image):
                hidden.append(entry.name)
            elif is_folder:
                (linked if entry.is_symlink() else own).append(entry)
            elif is_image:
                images.add(entry)
    if hidden:
        shown = printable(", ".join(hidden[:NAMES_SHOWN]))
        log.warning("left out %d hidden images and folders of %s: %s …", len(hidden), folder, shown)
    return images


def read_bytes(file: str, start: int, size: int) -> bytes:
    """`size` bytes from `start`; all the rest where size is -1."""
    with open(file, "rb") as opened:
        opened.seek(start)
        return opened.read(size)


def try_caption(read: Callable[[], object]) -> tuple[str, str]:
    """The caption that `read` returns, and the reason why it cannot be used: an unreadable one stops no data set."""
    try:
        return caption_of(read()), ""
    except Exception as error:  # json.loads raises RecursionError and others, pyarrow UnicodeDecodeError
        return "", str(error) or type(error).__name__


def caption_of(value: object) -> str:
    """A text without spaces around it, the first of several, a class's number as text; "" for None and for punctuation
    alone. In a column with a missing value, whole numbers are floats and the missing one is NaN."""
    if isinstance(value, float) and (isnan(value) or value.is_integer()):
        value = None if isnan(value) else int(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = value[0] if value else None
    text = str(value) if is_whole(value) else "" if value is None else value
    if not isinstance(text, str):
        raise LanternError(f"it has the caption {str(value)[:80]}; give a text for each image, or a class's number")
    if not is_text(text) or "\0" in text:
        raise LanternError(f"its caption {text[:80]!r} is no UTF-8 text; save it as UTF-8")
    return text.strip() if text.strip(punctuation + whitespace) else ""


def as_class(caption: str, num_classes: int | None) -> tuple[str, str]:
    """A caption and, for a model that is told classes, why it is none; 3.0, as tables have it, is class 3."""
    number = caption.removesuffix(".0")
    if not num_classes or not caption or (number.isdecimal() and int(number) < num_classes):
        return (number if num_classes else caption), ""
    return caption, f"its caption {caption[:80]!r} is no class from 0 to {num_classes - 1}"


def caption_keys(named: str | None, num_classes: int | None = None) -> tuple[str, ...]:
    """The keys of a record under which its caption is looked for: the one that a setting names, or the usual ones."""
    return (str(named),) if named else ("label", *CAPTION_KEYS) if num_classes else CAPTION_KEYS


def caption_in(record: object, keys: Sequence[str] = CAPTION_KEYS) -> str:
    """The first caption of a record that has one, else ""."""
    values = [record.get(key) for key in keys] if isinstance(record, Mapping) else []
    return next(filter(None, map(caption_of, values)), "")
