"""Profiles on disk: profiles.json in a run folder holds its settings' by setting id, that of a sweep its points'."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from lantern.metrics.profile import Profile
from lantern.results import encode, replace_text

PROFILES = "profiles.json"


def write_profiles(folder: Path, profiles: Mapping[str, Profile]) -> None:
    """A line a setting, so that the file can be looked into."""
    lines = (f"{json.dumps(key)}: {encode(profile)}" for key, profile in profiles.items())
    replace_text(folder / PROFILES, "{\n" + ",\n".join(lines) + "\n}\n")


def read_profiles(folders: Sequence[Path]) -> dict[str, Profile]:
    """By setting id; of a setting that several folders measured, the AR baseline of a sweep's points, the first."""
    found: dict[str, Profile] = {}
    for path in (folder / PROFILES for folder in folders):
        if path.is_file():
            found = json.loads(path.read_text()) | found
    return found
