"""Captions as data sets hold them: texts, or the numbers of classes."""

from collections.abc import Mapping
from pathlib import Path

from lantern.errors import LanternError, is_whole

CAPTION_KEYS = ("caption", "text", "prompt")  # of a record, in this order


def caption_of(value: object, source: str | Path) -> str:
    """A text without spaces around it, a class's number as text; "" for None. LanternError for anything else, such as a
    list of captions."""
    if value is None or isinstance(value, str):
        return (value or "").strip()
    if is_whole(value):
        return str(value)
    raise LanternError(f"{source} has the caption {str(value)[:80]}; give a text for each image, or a class's number")


def caption_in(record: object, source: str | Path) -> str:
    """The first caption of a record that has one under CAPTION_KEYS, else ""."""
    values = [record.get(key) for key in CAPTION_KEYS] if isinstance(record, Mapping) else []
    return next(filter(None, (caption_of(value, source) for value in values)), "")


def read_text(content: bytes) -> str:
    """UTF-8 with or without a byte order mark, which would be a part of the first word."""
    return content.decode("utf-8-sig", errors="replace")
