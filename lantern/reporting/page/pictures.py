"""The same prompts under every setting, as pictures inside the page."""

import base64
import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from lantern.evaluation.records import RECORDS, current_lines
from lantern.evaluation.rows import read_rows

log = logging.getLogger(__name__)
MOST_PICTURES, MOST_PROMPTS = 120, 12  # about 6 kB each at 128 pixels
SIDE, QUALITY = 384, 90  # the run folder has the full images
Key = tuple[str, int]  # a prompt and its copy number


def same_prompt_pictures(points: Sequence[Path], settings: Sequence[str]) -> dict[str, object]:
    """{"prompts": [{text, copy, seed}], "pictures": a list a setting of {src, same}}, of the prompts that all settings
    with images share; `same`: whether its tokens are those of the first setting."""
    found, shared = shared_records(points, settings)
    if not found:
        return {"prompts": [], "pictures": [[] for _ in settings]}
    shown = shared[: max(1, min(MOST_PROMPTS, MOST_PICTURES // len(found)))]
    first = next(iter(found.values()))
    return {
        "prompts": [{"text": text, "copy": copy, "seed": str(first[text, copy]["seed"])} for text, copy in shown],
        "pictures": [
            [
                {"src": data_url(record["file"]), "same": record.get("tokens") == first[key].get("tokens")}
                for key in shown
                if (record := found.get(setting, {}).get(key))
            ]
            for setting in settings
        ],
    }


def shared_records(points: Sequence[Path], settings: Sequence[str]) -> tuple[dict[str, dict[Key, Mapping]], list[Key]]:
    """The last record with an image file by setting, prompt and copy, of the settings with any; and the prompts that
    these settings share."""
    held: dict[str, dict[Key, Mapping]] = {}
    for point in points:
        if not (point / RECORDS).is_file():
            log.warning("%s is missing: its images are not shown", point / RECORDS)
            continue
        for record in current_lines(read_rows(point / RECORDS)):
            if record.get("image") and (point / record["image"]).is_file():
                key = (record["prompt"], record["copy"])
                held.setdefault(record["setting"], {})[key] = record | {"file": point / record["image"]}
    found = {setting: held[setting] for setting in settings if setting in held}
    first = next(iter(found.values()), {})
    return found, [key for key in first if all(key in records for records in found.values())]


def data_url(path: Path) -> str:
    """An image file as a data URL, no side over SIDE pixels."""
    image, buffer = Image.open(path).convert("RGB"), io.BytesIO()
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    image.save(buffer, "WEBP", quality=QUALITY)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
