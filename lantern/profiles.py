"""Profiles on disk: profiles*.json in a run folder holds its settings' by setting id, one file a process that decoded
there (a shard has its own), and profiles.json in a sweep's folder its points'."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from lantern.metrics.profile import SHOWN_NODES, Profile
from lantern.results import encode, replace_text


def write_profiles(folder: Path, profiles: Mapping[str, Profile], process: str = "") -> None:
    """A line a setting. What the process wrote before stays, unless it is given anew: a run that finds all its images
    on record decodes nothing."""
    path = folder / (f"profiles-{process}.json" if process else "profiles.json")
    known = json.loads(path.read_text()) if path.is_file() else {}
    lines = (f"{json.dumps(key)}: {encode(profile)}" for key, profile in (known | dict(profiles)).items())
    replace_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_profiles(folders: Sequence[Path]) -> dict[str, Profile]:
    """By setting id: those of a folder's processes together; of a setting that several folders measured, the AR
    baseline of a sweep's points, the first."""
    found: dict[str, Profile] = {}
    for folder in folders:
        parts: dict[str, list[Profile]] = {}
        for path in sorted(folder.glob("profiles*.json")):
            for setting, profile in json.loads(path.read_text()).items():
                parts.setdefault(setting, []).append(profile)
        found = {setting: combined(profiles) for setting, profiles in parts.items()} | found
    return found


def combined(profiles: Sequence[Profile]) -> Profile:
    """One profile of all their images."""
    first, *others = profiles
    if not others:
        return first
    bits = [(p["entropy_images"], p["entropy_bits"]) for p in profiles if p["entropy_bits"]]
    images = sum(count for count, _ in bits)
    mean = [sum(count * value for (count, _), value in zip(bits, place, strict=True)) / images
            for place in zip(*(values for _, values in bits), strict=True)]  # fmt: skip
    tree = _combined_tree([p["tree"] for p in profiles])
    return {
        "grid": first["grid"],
        **{key: sum(p[key] for p in profiles) for key in ("images", "rounds")},
        "committed": _added([p["committed"] for p in profiles]),
        **{name: {part: _added([p[name][part] for p in profiles]) for part in ("judged", "accepted")}
           for name in ("depth", "rank", "position", "entropy")},
        "entropy_images": images, "entropy_bits": mean,
        "nodes": max(len(tree), *(p["nodes"] for p in profiles)),  # at least: a dynamic tree's rare nodes are not kept
        "nodes_accepted": max(sum(n["accepted"] > 0 for n in tree), *(p["nodes_accepted"] for p in profiles)),
        "tree": tree[:SHOWN_NODES],
    }  # fmt: skip


def _added(lists: Sequence[Sequence[int]]) -> list[int]:
    length = max(map(len, lists))
    return [sum(values[i] for values in lists if i < len(values)) for i in range(length)]


def _combined_tree(trees: Sequence[Sequence[Mapping]]) -> list[dict]:
    drafted, accepted = Counter(), Counter()
    for node in (node for tree in trees for node in tree):
        drafted[tuple(node["path"])] += node["drafted"]
        accepted[tuple(node["path"])] += node["accepted"]
    order = sorted(drafted, key=lambda path: (-drafted[path], len(path), path))
    return [{"path": list(path), "drafted": drafted[path], "accepted": accepted[path]} for path in order]
