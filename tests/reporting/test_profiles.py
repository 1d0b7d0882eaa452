"""Profiles on disk: by setting, the newest of each, other folders' left alone."""

from pathlib import Path

from lantern.reporting.profiles import read_profiles, write_profiles

FEW, MANY = {"images": 3}, {"images": 4}


def test_the_profile_of_the_first_folder_counts(tmp_path: Path):
    """Catches the baseline of a sweep counted once a point."""
    for number, profile in enumerate((FEW, MANY)):
        write_profiles(tmp_path / str(number), {"plain": profile, str(number): profile})
    assert read_profiles([tmp_path / "0", tmp_path / "1", tmp_path / "none"]) == {"plain": FEW, "0": FEW, "1": MANY}


def test_what_was_known_stays_where_nothing_was_decoded_anew(tmp_path: Path):
    write_profiles(tmp_path, {"a": FEW, "b": FEW})
    write_profiles(tmp_path, {"b": MANY})
    assert read_profiles([tmp_path]) == {"a": FEW, "b": MANY}
    write_profiles(tmp_path, {})
    assert set(read_profiles([tmp_path])) == {"a", "b"}
