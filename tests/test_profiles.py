from pathlib import Path

import pytest
from metrics.test_profile import TREES, tiny_pipeline
from toy import PROMPTS, SEEDS

from lantern.metrics.profile import profile_of
from lantern.profiles import combined, read_profiles, write_profiles


@pytest.fixture(scope="module")
def profiles() -> dict[str, dict]:
    """Of three images, of four others, and of all seven, made one after another."""
    pipeline = tiny_pipeline(*TREES["static"])
    made = [pipeline.generate([prompt], [seed], 1) for prompt, seed in zip(PROMPTS[:7], SEEDS[:7], strict=True)]
    few, many = profile_of(pipeline, PROMPTS[:3], made[:3]), profile_of(pipeline, PROMPTS[3:7], made[3:])
    return {"few": few, "many": many, "all": profile_of(pipeline, PROMPTS[:7], made)}


def same(a: dict, b: dict) -> bool:
    bits = a["entropy_bits"] == pytest.approx(b["entropy_bits"], abs=2e-3)
    return bits and {**a, "entropy_bits": 0} == {**b, "entropy_bits": 0}


def test_profiles_of_parts_add_up_to_that_of_the_whole(profiles):
    assert same(combined([profiles["few"], profiles["many"]]), profiles["all"])


def test_the_processes_of_a_folder_are_added_and_other_folders_are_not(profiles, tmp_path: Path):
    """Catches the baseline of a sweep counted once a point."""
    for number in (0, 1):
        write_profiles(tmp_path / str(number), {"plain": profiles["few"]}, "0")
        write_profiles(tmp_path / str(number), {"plain": profiles["many"]}, "1")
    assert same(read_profiles([tmp_path / "0", tmp_path / "1"])["plain"], profiles["all"])


def test_what_was_known_stays_where_nothing_was_decoded_anew(profiles, tmp_path: Path):
    write_profiles(tmp_path, {"a": profiles["few"], "b": profiles["few"]})
    write_profiles(tmp_path, {"b": profiles["many"]})
    assert read_profiles([tmp_path]) == {"a": profiles["few"], "b": profiles["many"]}
    write_profiles(tmp_path, {})
    assert set(read_profiles([tmp_path])) == {"a", "b"}
