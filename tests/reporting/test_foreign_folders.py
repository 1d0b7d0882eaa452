"""Reports of run folders that someone else has filled: nothing outside them is shown, and what is damaged is left
out with a warning."""

import json
import os
from pathlib import Path

import pytest
from PIL import Image
from support.fake_pipeline import FakePipeline
from support.made_sweep import PROMPTS, made_points, made_sweep
from support.pages import read_content

from lantern.evaluation.records import RECORDS
from lantern.evaluation.rows import SUMMARY, read_rows, read_summary, setting_id
from lantern.reporting.merge import merge_points, point_folders
from lantern.reporting.page.pictures import shared_records
from lantern.reporting.ranking import Budget


@pytest.fixture
def sweep(tmp_path) -> Path:
    return made_sweep(tmp_path / "sweep")


def report(folder: Path) -> dict:
    merge_points(folder, point_folders(folder), "again", Budget({"frechet": 0.1}))
    return read_content(folder / "report.html")


def change(path: Path, **values: object) -> None:
    """In all lines of a record file; ... leaves a key out."""
    lines = [{k: v for k, v in (line | values).items() if v is not ...} for line in read_rows(path)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("way", ["absolute", "above", "link"])
def test_only_files_of_the_run_folder_are_put_into_its_page(way, sweep, tmp_path, caplog):
    """Catches a foreign folder that puts a picture of this disk into a page that is shared."""
    private = tmp_path / "private.png"
    Image.new("RGB", (32, 32), "red").save(private)
    names = {"absolute": str(private), "above": "../../private.png", "link": "images/link.png"}
    (sweep / "0" / "images" / "link.png").symlink_to(private)
    change(sweep / "0" / RECORDS, image=names[way])
    assert report(sweep)["prompts"] == []
    assert "leads out of the folder" in caplog.text


def test_a_linked_summary_and_a_linked_point_are_not_read_and_a_missing_record_is_told(sweep, tmp_path, caplog):
    """Catches JSON of this disk, such as a provenance with its settings, in the page of a foreign folder."""
    elsewhere = made_sweep(tmp_path / "elsewhere") / "0"
    (sweep / "0" / SUMMARY).unlink()
    (sweep / "0" / SUMMARY).symlink_to(elsewhere / SUMMARY)
    (sweep / "7").symlink_to(elsewhere)
    (sweep / "1" / RECORDS).unlink()
    assert [row["label"] for row in report(sweep)["rows"]] == ["AR", "shared_noise δ 0.1", "ratio δ 0.4"]
    assert f"{sweep}/7 is a link to another place" in caplog.text
    assert f"{sweep}/0/{SUMMARY} is damaged" in caplog.text
    assert f"{sweep}/1/{RECORDS} is missing: its images are not shown" in caplog.text


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def bomb(path: Path) -> None:
    Image.new("1", (20_000, 10_000)).save(path)


HARMS = [half, lambda path: path.write_bytes(b""), bomb, os.unlink]


@pytest.mark.parametrize("harm", HARMS)
def test_a_broken_picture_leaves_its_prompt_out(harm, sweep, caplog):
    """Catches a finished run whose report ends in a traceback of the decoder of images."""
    harm(next((sweep / "1" / "images").glob("00001-*")))
    content = report(sweep)
    assert [prompt["text"] for prompt in content["prompts"]] == [PROMPTS[0], PROMPTS[2]]
    assert "prompts left out of the pictures: 1" in caplog.text or harm is os.unlink
    assert (sweep / "grid.png").is_file()


@pytest.mark.parametrize(("key", "value"), [
    ("prompt", ...), ("copy", ...), ("setting", ...), ("seed", ...), ("prompt", 3), ("prompt", None), ("prompt", ["a"]),
    ("image", 3), ("image", ["a"]), ("image", 5000 * "x"), ("setting", {}), ("retimed", "x"),
])  # fmt: skip
def test_records_of_another_kind_are_passed_over(key, value, sweep):
    change(sweep / "1" / RECORDS, **{key: value})
    assert len(report(sweep)["rows"]) == 4


@pytest.mark.parametrize("content", ['{"a": ', "[NaN]"])
@pytest.mark.parametrize("name", [SUMMARY, RECORDS, "profiles.json", "provenance.json"])
def test_a_damaged_file_is_passed_over(name, content, sweep):
    (sweep / "1" / name).write_text(content)
    assert len(report(sweep)["rows"]) == (3 if name == SUMMARY else 4)


def test_a_folder_used_again_for_other_points_shows_each_setting_its_own_pictures(tmp_path):
    """Catches a picture of the point that took the place, and so the file names, of a setting's former one."""
    for deltas in ({0.1: FakePipeline, 0.3: FakePipeline}, {0.3: FakePipeline, 0.4: FakePipeline}):
        points = made_points(tmp_path, PROMPTS, deltas)
    own = setting_id(read_summary(points[0])[1])
    found, _ = shared_records(points, [own])
    assert {record["file"].parent.parent for record in found[own].values()} == {points[0]}
