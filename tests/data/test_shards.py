"""WebDataset shards: good samples are read in place, bad ones and truncated shards are listed."""

import json

import numpy as np
import pytest
from support.shards import opened, picture, sample, values_of, write_shard

from lantern.data.webdataset import find_shards, web_dataset
from lantern.errors import LanternError


def test_samples_of_all_shards_are_read_where_they_lie(tmp_path):
    write_shard(tmp_path / "a.tar", [*sample("1", 10), *sample("2", 20)])
    as_json = json.dumps({"caption": "caption 30"}).encode()
    write_shard(tmp_path / "b.tar", [("x/1.json", as_json), ("x/1.jpg", picture(30, format="JPEG"))])
    split = opened(tmp_path, tmp_path).split("train")
    assert values_of(split) == {"caption 10": 10, "caption 20": 20, "caption 30": 30}
    image = split[0]["image"]
    assert (image.shape, image.dtype, image.flags.writeable) == ((16, 16, 3), np.uint8, True)


@pytest.mark.parametrize("record", [b"{}", b'{"width": 20}', b"no json"])
def test_a_caption_beside_a_record_without_one_is_found(tmp_path, record):
    """Catches images that are skipped for the .json of their sizes, which comes before their .txt in a shard."""
    write_shard(tmp_path / "a.tar", [("1.json", record), *sample("1", 10), *sample("2", 20), ("2.json", record)])
    assert values_of(opened(tmp_path, tmp_path).split("train")) == {"caption 10": 10, "caption 20": 20}


def test_a_truncated_shard_yields_the_samples_before_its_end(tmp_path, caplog):
    whole = write_shard(tmp_path / "a.tar", [*sample("1", 10), *sample("2", 20), *sample("3", 30)])
    cut = whole.read_bytes()[: 512 * 9 + 40]  # inside the third image, behind its header
    whole.write_bytes(cut)
    write_shard(tmp_path / "b.tar", sample("1", 40))
    data = opened(tmp_path, tmp_path)
    assert values_of(data.split("train")) == {"caption 10": 10, "caption 20": 20, "caption 40": 40}
    assert ["breaks off" in problem for problem in data.skipped.values()] == [True]
    assert "skipped 1 of 4" in caplog.text


def test_odd_samples_are_listed_by_name(tmp_path):
    members = [*sample("1", 10), ("1.jpg", picture(99, format="JPEG")), ("silent.png", picture(1))]
    members += [("empty.png", b""), ("empty.txt", b"empty"), ("cut.png", picture(5)[:40]), ("cut.txt", b"cut")]
    members += [("grey.png", picture(7, "L")), ("grey.txt", b"caption 7")]
    members += [("ink.jpg", picture(255, "CMYK", "JPEG")), ("ink.txt", b"black")]
    write_shard(tmp_path / "a.tar", members)
    data = opened(tmp_path / "a.tar", tmp_path)
    assert values_of(data.split("train")) == {"caption 10": 10, "caption 7": 7, "black": 0}
    named = {name.rsplit("/")[-1]: problem for name, problem in data.skipped.items()}
    assert named.keys() == {"1.jpg", "silent.png", "empty.png", "cut.png"}
    assert named["1.jpg"] == "a second image under this name"
    assert named["silent.png"] == "no caption"


def test_a_missing_shard_of_a_numbered_range_is_listed_and_read_once_it_is_there(tmp_path, caplog):
    """Catches an index of the shards that were there at the first time."""
    shards = str(tmp_path / "s-{000..002}.tar")
    for number in (0, 2):
        write_shard(tmp_path / f"s-{number:03d}.tar", sample("1", number))
    data = opened(shards, tmp_path)
    assert values_of(data.split("train")) == {"caption 0": 0, "caption 2": 2}
    assert data.skipped == {str(tmp_path / "s-001.tar"): "no such shard"}
    assert "s-001.tar: no such shard" in caplog.text
    write_shard(tmp_path / "s-001.tar", sample("1", 1))
    assert len(opened(shards, tmp_path).split("train")) == 3
    for none in ("s-{007..009}.tar", "*.nothing"):
        with pytest.raises(LanternError, match="no shards"):
            find_shards(str(tmp_path / none))


def test_a_source_and_a_cache_in_the_home_folder_are_found_by_a_tilde(tmp_path, monkeypatch):
    """As a model's files are. Catches a folder named ~ in the working folder, full of tables."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    write_shard(tmp_path / "data" / "a.tar", sample("1", 10))
    split = web_dataset("~/data/*.tar", 16, cache_dir="~/cache", validation_share=0.0).split("train")
    assert values_of(split) == {"caption 10": 10}
    assert len(list((tmp_path / "cache").glob("list-*"))) == 1


def test_the_class_of_number_zero_has_a_caption(tmp_path):
    write_shard(tmp_path / "a.tar", [("1.png", picture(7)), ("1.json", b'{"caption": 0}')])
    assert values_of(opened(tmp_path / "a.tar", tmp_path).split("train")) == {"0": 7}


def test_a_whole_number_with_a_point_is_a_class(tmp_path):
    """A table makes classes 3.0. Catches a data set of which every sample is left out, also beside a text."""
    members = [("1.png", picture(30)), ("1.cls", b"3.0"), ("1.txt", b"a dog"), ("2.png", picture(1))]
    write_shard(tmp_path / "a.tar", members)
    assert values_of(opened(tmp_path, tmp_path, num_classes=9).split("train")) == {"3": 30}


@pytest.mark.parametrize(("names", "train", "validation"), [
    (["train-0", "validation-0", "test-0"], [0], [1]),
    (["data/train-0-of-2", "data/train-1-of-2", "data/test-0-of-1"], [0, 1], [0, 1]),
    (["en/train/0000", "en/validation/0000"], [0], [1]), (["train_0", "val_0", "train_1"], [0, 2], [1]),
    (["train-0", "more-0"], [0, 1], [0, 1]), (["test-0", "test-1"], [0, 1], [0, 1]),
])  # fmt: skip
def test_files_named_after_splits_are_those(names, train, validation, tmp_path):
    """Below the folder, too, as the Hub lays them out. Catches a training on images for tests."""
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_shard(tmp_path / f"{name}.tar", [f for i in range(8) for f in sample(f"{i}", 100 * number + i)])
    data = web_dataset(str(tmp_path), 16, str(tmp_path / "cache"), validation_share=0.5)
    found = [[int(text.split()[-1]) for text in data.split(name).captions] for name in ("train", "validation")]
    assert [sorted({number // 100 for number in one}) for one in found] == [train, validation]
    assert len(found[0]) + len(found[1]) == 8 * len({*train, *validation})


def test_a_shards_class_is_read_for_a_model_of_classes_alone(tmp_path):
    write_shard(tmp_path / "a.tar", [("1.png", picture(7)), ("1.cls", b"3\n"), *sample("2", 9)])
    assert values_of(opened(tmp_path, tmp_path).split("train")) == {"caption 9": 9}
    classes = opened(tmp_path, tmp_path, num_classes=9)
    assert values_of(classes.split("train")) == {"3": 7}
    assert list(classes.skipped.values()) == ["its caption 'caption 9' is no class from 0 to 8"]


def test_the_column_or_key_of_a_caption_can_be_named(tmp_path):
    write_shard(tmp_path / "a.tar", [("1.png", picture(7)), ("1.json", b'{"caption": "a", "title": "b"}')])
    assert values_of(opened(tmp_path, tmp_path, caption_column="title").split("train")) == {"b": 7}
