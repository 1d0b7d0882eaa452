"""The same prompts under every setting, as pictures inside the page. A run folder may be someone else's: only files
inside it are read, and what is no picture is left out with a warning."""

import base64
import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from lantern.evaluation.records import RECORDS, current_lines, read_records
from lantern.evaluation.rows import read_summary, setting_id
from lantern.runtime.files import bytes_of, is_file

log = logging.getLogger(__name__)
MOST_PICTURES, MOST_PROMPTS = 120, 12  # about 6 kB each at 128 pixels
SIDE, QUALITY = 384, 90  # the run folder has the full images
Key = tuple[str, int]  # a prompt and its copy number


def same_prompt_pictures(home: Path, points: Sequence[Path], settings: Sequence[str]) -> dict[str, object]:
    """{"prompts": [{text, copy}], "pictures": a list a setting of {src, same}}, of the prompts that all settings
    with images share; `same`: whether its tokens are those of the first setting. home: as in shared_records."""
    found, shared = shared_records(points, settings)
    if not found:
        return {"prompts": [], "pictures": [[] for _ in settings]}
    shown = read_pictures(home, found, shared, max(1, min(MOST_PROMPTS, MOST_PICTURES // len(found))))
    first = next(iter(found.values()))
    return {
        "prompts": [{"text": text, "copy": copy} for text, copy in shown],
        "pictures": [
            [
                {"src": data_url(pictures[setting]), "same": records[key].get("tokens") == first[key].get("tokens")}
                for key, pictures in shown.items()
                if (records := found.get(setting))
            ]
            for setting in settings
        ],
    }


def shared_records(points: Sequence[Path], settings: Sequence[str]) -> tuple[dict[str, dict[Key, Mapping]], list[Key]]:
    """The last record with an image file by setting, prompt and copy, of the settings of each point's last run, whose
    files may have the names of an earlier one's; and the prompts that settings with any share."""
    held: dict[str, dict[Key, Mapping]] = {}
    for point in points:
        if not (point / RECORDS).is_file():
            log.warning("%s is missing: its images are not shown", point / RECORDS)
            continue
        last = set(map(setting_id, read_summary(point)))
        for record in current_lines(read_records(point / RECORDS)):
            if record["setting"] in last and record["image"] and is_file(point / record["image"]):
                key = (record["prompt"], record["copy"])
                held.setdefault(record["setting"], {})[key] = record | {"file": point / record["image"]}
    found = {setting: held[setting] for setting in settings if setting in held}
    first = next(iter(found.values()), {})
    return found, [key for key in first if all(key in records for records in found.values())]


def read_pictures(
    home: Path, found: Mapping[str, Mapping[Key, Mapping]], shared: Sequence[Key], most: int
) -> dict[Key, dict[str, Image.Image]]:
    """The pictures of the first `most` prompts, by setting. A prompt is left out if one of its pictures is broken, or
    outside `home`, the folder that is reported."""
    read: dict[Key, dict[str, Image.Image]] = {}
    broken: list[Exception] = []
    for key in shared:
        try:
            read[key] = {setting: _picture(records[key]["file"], home) for setting, records in found.items()}
        except Exception as error:  # PIL and its decoders raise many kinds
            broken.append(error)
        if len(read) == most:
            break
    if broken:
        log.warning("prompts left out of the pictures: %d (%s)", len(broken), broken[0])
    return read


def _picture(path: Path, home: Path) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            return Image.open(io.BytesIO(bytes_of(path, home))).convert("RGB")
        except Exception as error:
            raise ValueError(error if str(path) in str(error) else f"{path}: {error}") from error


def data_url(image: Image.Image) -> str:
    """An image as a data URL, no side over SIDE pixels."""
    image, buffer = image.copy(), io.BytesIO()
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    image.save(buffer, "WEBP", quality=QUALITY)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
