"""profiles.json: the acceptance profiles of a run folder's settings, or of a sweep's points, by setting id."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from lantern.evaluation.rows import encode
from lantern.metrics.profile import Profile
from lantern.runtime.files import read_object, replace_text

PROFILES = "profiles.json"


def write_profiles(folder: Path, profiles: Mapping[str, Profile]) -> None:
    """A line a setting. Earlier profiles of other settings are kept: a run that finds all its images on record decodes
    nothing and has no profile."""
    path = folder / PROFILES
    lines = (f"{json.dumps(key)}: {encode(profile)}" for key, profile in (read_object(path) | dict(profiles)).items())
    replace_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_profiles(folders: Sequence[Path]) -> dict[str, Profile]:
    """By setting id; the first folder's where several measured a setting, as a sweep's points measure AR."""
    found: dict[str, Profile] = {}
    for path in (folder / PROFILES for folder in folders):
        found = read_object(path) | found
    return found
