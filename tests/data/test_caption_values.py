"""Captions that are numbers of classes, and texts as editors save them, reach a training as they are meant."""

import os

import pytest
from support.image_folder import folder_of, opened
from support.shards import opened as opened_shards
from support.shards import parquet, picture, sample, values_of, write_parquet, write_shard

from lantern.data import webdataset
from lantern.errors import LanternError


def test_the_class_of_number_zero_has_a_caption(tmp_path):
    write_parquet(tmp_path / "a.parquet", [picture(10 * i) for i in range(3)], [0, 1, 2])
    assert values_of(parquet(tmp_path, tmp_path).split("train")) == {"0": 0, "1": 10, "2": 20}
    write_shard(tmp_path / "a.tar", [("1.png", picture(7)), ("1.json", b'{"caption": 0}')])
    assert values_of(opened_shards(tmp_path / "a.tar", tmp_path).split("train")) == {"0": 7}


def test_several_captions_of_an_image_are_one_clear_sentence(tmp_path):
    """Catches a training on the text of a Python list."""
    write_parquet(tmp_path / "a.parquet", [picture(1)], [["a cat", "two cats"]])
    with pytest.raises(LanternError, match=r"a.parquet, column caption, has the caption .'a cat', 'two cats'.; give a"):
        parquet(tmp_path, tmp_path)


def test_marks_and_separators_of_text_files_are_no_part_of_a_caption(tmp_path):
    """A byte order mark would be a part of the first word; U+2028 ends no line of JSON."""
    folder_of(tmp_path, ["a.png", "b.png"])
    (tmp_path / "a.txt").write_bytes("\ufeffa red sphere".encode())
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "b.png", "text": "one\u2028two"}\n', encoding="utf-8-sig")
    assert sorted(opened(tmp_path, tmp_path).split("train").captions) == ["a red sphere", "one\u2028two"]
    write_shard(tmp_path / "a.tar", [("1.png", picture(7)), ("1.json", b'\xef\xbb\xbf{"text": "seven"}')])
    assert values_of(opened_shards(tmp_path / "a.tar", tmp_path).split("train")) == {"seven": 7}


def test_a_file_name_that_is_no_text_is_named(tmp_path):
    folder_of(tmp_path, ["a.png"])
    os.rename(tmp_path / "a.png", os.fsencode(tmp_path) + b"/caf\xe9.png")
    with pytest.raises(LanternError, match=r"caf\\xe9.png' is not UTF-8; rename that file"):
        opened(tmp_path, tmp_path)


def test_a_shard_that_may_not_be_read_is_listed_and_read_once_it_may(tmp_path, monkeypatch):
    """Catches a traceback, and a list of unusable files that outlives the permission. The check is replaced: root may
    read everything."""
    for number in (1, 2):
        write_shard(tmp_path / f"{number}.tar", sample("1", number))
    closed = {str(tmp_path / "2.tar")}
    read = webdataset.read_bytes

    def refused(file, *place, **named):
        if file in closed:
            raise PermissionError(13, "Permission denied", file)
        return read(file, *place, **named)

    monkeypatch.setattr(webdataset, "read_bytes", refused)
    for module in ("webdataset", "splits"):
        monkeypatch.setattr(f"lantern.data.{module}.is_readable", lambda file: file not in closed)
    first = opened_shards(tmp_path / "*.tar", tmp_path)
    assert values_of(first.split("train")) == {"caption 1": 1}
    assert "Permission denied" in first.skipped[f"{tmp_path}/2.tar/2.tar"]
    closed.clear()
    assert values_of(opened_shards(tmp_path / "*.tar", tmp_path).split("train")) == {"caption 1": 1, "caption 2": 2}
