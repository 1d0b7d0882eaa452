"""Points of a sweep are merged into one table, with their profiles and warnings; their images are whole."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from support.evaluations import evaluation
from support.fake_pipeline import Brightness, FakePipeline

from lantern.errors import LanternError
from lantern.evaluation.rows import encode
from lantern.reporting.merge import merge_points, point_folders, read_profiles, write_profiles
from lantern.reporting.publish import write_images, write_measurements
from lantern.reporting.ranking import Budget, check_alike
from lantern.runtime.files import replace_text

ROW = {"model": "a", "drafter": "none", "acceptance": "exact", "tree": "none", "code": "c1", "target_hash": "w1"}
ROW |= {"tokenizer_hash": "t1"}
METHOD = ROW | {"drafter": "eagle", "device": "cpu", "threads": 1, "compile": False, "speedup": 2.0}
FEW, MANY = {"images": 3}, {"images": 4}


def test_rows_of_the_same_code_and_weights_are_merged_also_of_several_models():
    check_alike([ROW, ROW | {"model": "b", "target_hash": "w2"}, ROW | {"code": None}])


@pytest.mark.parametrize("change", [{"code": "c2"}, {"target_hash": "w2"}, {"tokenizer_hash": "t2"}])
def test_rows_of_other_code_or_weights_are_refused_and_named(change):
    """Catches a table whose rows differ in more than its columns say, such as of machines with other checkouts."""
    (key, value), = change.items()  # fmt: skip
    with pytest.raises(LanternError, match=rf"\({ROW[key]} in a/ar, {value} in a/ar\)"):
        check_alike([ROW, ROW | change])


def merge(folder: Path, *rows: dict) -> None:
    for number, row in enumerate(rows):
        replace_text(folder / str(number) / "summary.json", encode({"row": row}))
        replace_text(folder / str(number) / "prompts.jsonl", "")
    merge_points(folder, point_folders(folder), "made-up sweep", Budget({"frechet": 0.1}))


def test_plain_decoding_of_two_tokenizers_is_refused_and_not_averaged(tmp_path):
    """Catches a time to the pixels that is the mean of two image decoders'."""
    with pytest.raises(LanternError, match=r"t1 in a/ar, t2 in a/ar"):
        merge(tmp_path, ROW, ROW | {"tokenizer_hash": "t2"})


@pytest.mark.parametrize(("change", "warning"), [
    ({}, "repeat the setting of another one: 1"),
    ({"threads": 2}, "rows not ranked: 1, whose plain decoding was timed with another threads"),
    ({"cuda_graphs": False}, "rows not ranked: 1, whose plain decoding was timed with another cuda_graphs"),
    ({"compile": True}, "rows not ranked: 1, whose plain decoding was timed with another compile"),
    ({"tree": "chain"}, None),
])  # fmt: skip
def test_points_that_are_one_setting_or_not_timed_alike_are_named(tmp_path, change, warning, caplog):
    """Catches a sweep over a metric's size, of whose points the table keeps one without a word, and a ranking of
    speed-ups on one and on two threads."""
    merge(tmp_path, METHOD, METHOD | {"tree": "other"}, METHOD | change)
    assert (warning in caplog.text) if warning else not caplog.records


def test_a_sweep_warns_once_below_its_table_and_keeps_the_warning_in_its_rows(tmp_path, capsys, caplog):
    """Catches a warning that is logged while points are measured, or lost."""
    for number, delta in enumerate((0.1, 0.2)):
        point, parts = tmp_path / str(number), {"metrics": {"w": Brightness()}}
        made = evaluation(point, ["a", "b"], 0, 2, 2, sweep=tmp_path, parts=parts).run(FakePipeline(delta=delta))
        write_measurements(point, made)
    assert "too dark to tell" not in caplog.text + capsys.readouterr().out
    rows = merge_points(tmp_path, point_folders(tmp_path), "delta sweep", Budget({"frechet": 0.1}))
    printed = capsys.readouterr().out
    assert printed.count("too dark to tell") == 1
    assert printed.index("tokens per step") < printed.index("too dark to tell")
    assert [row["warnings"] for row in rows] == ["too dark to tell"] * 3


def test_the_profile_of_the_first_folder_counts_and_stays_where_nothing_was_decoded_again(tmp_path):
    """Catches the baseline of a sweep counted once a point."""
    write_profiles(tmp_path, {"a": FEW, "b": FEW})
    write_profiles(tmp_path, {"b": MANY})
    write_profiles(tmp_path, {})
    assert read_profiles([tmp_path]) == {"a": FEW, "b": MANY}
    for number, profile in enumerate((FEW, MANY)):
        write_profiles(tmp_path / str(number), {"plain": profile, str(number): profile})
    assert read_profiles([tmp_path / "0", tmp_path / "1", tmp_path / "none"]) == {"plain": FEW, "0": FEW, "1": MANY}


def test_an_image_is_whole_or_not_there(tmp_path, monkeypatch):
    """Catches a picture cut short by a killed point of a sweep, at which the sweep's report then ends."""
    write_images(tmp_path, ["0.png"], torch.zeros(1, 3, 8, 8))

    def torn(image: Image.Image, path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Image.Image, "save", torn)
    with pytest.raises(KeyboardInterrupt):
        write_images(tmp_path, ["0.png", "1.png"], torch.ones(2, 3, 8, 8))
    assert [path.name for path in tmp_path.iterdir()] == ["0.png"]
    assert Image.open(tmp_path / "0.png").size == (8, 8)
