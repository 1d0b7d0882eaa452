"""Data as people have it: each sample is read as meant or listed with the reason, and the rest of the data set is read.
No path that is written inside data is opened."""

import io
import json
import os
import tarfile
from math import nan

import pytest
from PIL import Image
from support.commands import python
from support.paths import ROOT
from support.shards import opened, opened_folder, picture, sample, values_of, write_shard

from lantern.data.image_io import caption_of
from lantern.data.imagefolder import image_folder
from lantern.data.webdataset import web_dataset
from lantern.errors import LanternError

GOOD = {"caption 10": 10}


def write_files(folder, members):
    for name, content in members:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def in_folder(tmp_path, members):
    return opened_folder(write_files(tmp_path / "images", members), tmp_path, validation_share=0.0)


def in_shard(tmp_path, members):
    return opened(write_shard(tmp_path / "a.tar", members), tmp_path)


def problems_of(data) -> dict[str, str]:
    return {name.rsplit("/")[-1]: problem for name, problem in data.skipped.items()}


@pytest.mark.parametrize("kept", [in_folder, in_shard])
@pytest.mark.parametrize(("content", "caption"), [
    ("a ring\u2019s edge".encode("utf-16"), "a ring\u2019s edge"),
    (b"\xfe\xff" + "a disc 🎈".encode("utf-16-be"), "a disc 🎈"),
    (b"\xef\xbb\xbfa cube\r\n", "a cube"),
    ("a ring\u2019s edge".encode("cp1252"), None),
    ("ein Würfel".encode("latin-1"), None),
    ("a ring".encode("utf-16-le"), None),
    ("a ring".encode("utf-16")[:-1], None),
    ("a ring".encode("utf-32"), None),
])  # fmt: skip
def test_a_caption_is_read_in_the_encoding_of_its_mark_or_listed(tmp_path, kept, content, caption):
    """Catches a training on replacement characters and zero bytes."""
    data = kept(tmp_path, [*sample("1", 10), ("2.png", picture(20)), ("2.txt", content)])
    assert values_of(data.split("train")) == (GOOD | {caption: 20} if caption else GOOD)
    assert list(problems_of(data)) == ([] if caption else ["2.png"])
    assert caption or "UTF-8" in problems_of(data)["2.png"]


@pytest.mark.parametrize(
    ("cell", "caption"), [(["a cat", "two cats"], "a cat"), ([], ""), (0, "0"), (3.0, "3"), (nan, ""), (None, "")]
)
def test_the_cell_of_a_table_is_its_first_text_or_a_class(cell, caption):
    """As COCO and tables with missing values have them. Catches a training on the text of a Python list, and class 0
    without a caption."""
    assert caption_of(cell) == caption


RECORDS = [
    b"[" * 200_000, b'{"file_name": "2.png", "text": %s}' % (b"9" * 5000),
    b'{"file_name": "2.png", "text": "a \\ud83d"}', b'{"file_name": "2.png", "text": true}',
    b'{"file_name": "2.png", "text": ["a", 3]}', b'{"file_name": "2.png", "text": "ring\x92s"}', b"no json",
    b'{"file_name": "2.png", "text": {"a": 1}}',
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=range(len(RECORDS)))
def test_a_record_that_cannot_be_used_is_listed_with_its_reason(tmp_path, record):
    """In metadata.jsonl, by its line, and as a sample's .json. Catches one record that stops the whole data set."""
    data = in_shard(tmp_path, [("2.json", record), ("2.png", picture(20)), *sample("1", 10)])
    assert values_of(data.split("train")) == GOOD
    assert list(problems_of(data)) == ["2.png"]
    assert problems_of(data)["2.png"] not in ("", "no caption")
    data = in_folder(tmp_path, [*sample("1", 10), ("2.png", picture(20)), ("metadata.jsonl", b"\n" + record)])
    assert values_of(data.split("train")) == GOOD
    assert any("metadata.jsonl line 2: " in f"{name}: {problem}" for name, problem in data.skipped.items())


@pytest.mark.parametrize("record", [
    {"file_name": 3, "text": "a"}, {"text": "a"}, [], {"file_name": "2.png"},
    {"file_name": "../x\udc92.png", "text": "a"},
])  # fmt: skip
def test_a_line_of_metadata_without_a_usable_name_or_text_stops_nothing(tmp_path, record, caplog):
    members = [*sample("1", 10), ("2.png", picture(20)), ("metadata.jsonl", json.dumps(record).encode())]
    data = in_folder(tmp_path, members)
    assert values_of(data.split("train")) == GOOD
    assert "metadata.jsonl" in caplog.text


def test_no_path_that_data_names_is_opened(tmp_path):
    """A line's file, links of a shard. Catches local files that a foreign data set makes into images of a training."""
    secret = tmp_path / "secret.png"
    secret.write_bytes(picture(99))
    lines = [{"file_name": name, "text": "caption 99"} for name in ("../secret.png", str(secret))]
    members = [*sample("1", 10), ("metadata.jsonl", "\n".join(map(json.dumps, lines)).encode())]
    assert values_of(in_folder(tmp_path, members).split("train")) == GOOD
    with tarfile.open(write_shard(tmp_path / "b.tar", [*sample("1", 10)]), "a") as shard:
        for number, target in enumerate((str(secret), "../secret.png", "secret.png", "b/../../secret.png")):
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                add_link(shard, f"{number}{kind.decode()}.png", target, kind)
    data = opened(tmp_path / "b.tar", tmp_path)
    assert values_of(data.split("train")) == GOOD
    assert len(data.skipped) == 8


def add_link(shard, name, target, kind):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    shard.addfile(info)


def test_dots_in_a_samples_name_are_a_part_of_it(tmp_path):
    """Catches keys that end at the first dot: 22.05 and 22.06 would be one sample, or none."""
    members = [*sample("22.05", 10), *sample("22.06", 20), *sample("v1.0/a", 30), ("1.seg.png", picture(5))]
    data = in_shard(tmp_path, members)
    assert values_of(data.split("train")) == {f"caption {value}": value for value in (10, 20, 30)}
    assert problems_of(data) == {"1.seg.png": "no caption"}
    assert len(in_folder(tmp_path, members).split("train")) == 3


HIDDEN = (
    ".ipynb_checkpoints/1-checkpoint", ".thumbnails/1", "@eaDir/1", "__MACOSX/1", "._1", "x/.cache/deep/1", "#recycle/1"
)  # fmt: skip


def test_hidden_and_system_folders_are_left_out_and_counted(tmp_path, caplog):
    """Catches copies by editors and systems that enter training, and the other split."""
    members = [*sample("1", 10), *(file for name in HIDDEN for file in sample(name, 99))]
    data = in_folder(tmp_path / ".my data", members)
    assert values_of(data.split("train")) == GOOD
    assert f"left out {len(HIDDEN)} hidden images and folders" in caplog.text
    data = in_shard(tmp_path, [(f"./{name}", content) for name, content in members])
    assert values_of(data.split("train")) == GOOD
    assert f"{len(HIDDEN)} hidden images were left out" in caplog.text


def test_links_to_folders_are_followed_once(tmp_path):
    """Catches images left out behind a link, loops, and a folder that is read under two names, of which a line of
    metadata.jsonl knows one."""
    images = write_files(tmp_path / "images", [*sample("sub/1", 10), *sample(".store/3", 30)])
    write_files(tmp_path / "elsewhere", sample("deep/2", 20))
    (images / "a link").symlink_to("sub")
    (images / "other").symlink_to(tmp_path / "elsewhere")
    (images / "shown").symlink_to(".store")
    (images / "sub" / "up").symlink_to("..")
    (images / "self").symlink_to("self")
    (tmp_path / "elsewhere" / "back").symlink_to(images)
    (images / "metadata.jsonl").write_text('{"file_name": "sub/1.png", "text": "one"}')
    data = opened_folder(images, tmp_path, validation_share=0.0)
    assert values_of(data.split("train")) == {"one": 10, "caption 20": 20, "caption 30": 30}
    assert data.skipped == {}


def test_an_image_whose_format_or_name_is_not_read_is_listed(tmp_path):
    data = in_folder(tmp_path, [*sample("1", 10), ("2.heic", b"ftypheic"), ("2.txt", b"a phone's")])
    assert list(problems_of(data)) == ["2.heic"]
    os.rename(tmp_path / "images" / "2.heic", os.fsencode(tmp_path) + b"/images/caf\xe9.png")
    data = in_folder(tmp_path, [])
    assert values_of(data.split("train")) == GOOD
    assert ["not UTF-8" in problem for problem in data.skipped.values()] == [True]
    os.rename(write_shard(tmp_path / "a.tar", sample("1", 10)), os.fsencode(tmp_path) + b"/caf\xe9.tar")
    write_shard(tmp_path / "b.tar", sample("1", 10) + sample("2", 20))
    assert len(opened(tmp_path, tmp_path).skipped) == 1


def test_no_program_is_started_for_an_image(tmp_path, monkeypatch):
    """Catches Pillow's use of Ghostscript for a foreign file that calls itself PostScript."""
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    content = io.BytesIO()
    Image.new("RGB", (20, 20)).save(content, "EPS")
    members = [*sample("1", 10), ("2.png", content.getvalue()), ("2.txt", b"caption 2")]
    assert list(problems_of(in_folder(tmp_path, members))) == ["2.png"]
    assert not (tmp_path / "started").exists()


def test_a_named_pipe_among_the_files_does_not_block(tmp_path):
    for name in ("a.tar", "a.png", "metadata.jsonl"):
        os.mkfifo(tmp_path / name)
    write_shard(tmp_path / "b.tar", sample("1", 10))
    write_files(tmp_path, sample("1", 10))
    code = (
        "import sys; from pathlib import Path; from support import shards; place = Path(sys.argv[1])\n"
        "print(len(shards.opened(place, place).split('train')))\n"
        "print(len(shards.opened_folder(place, place, validation_share=0.0).split('train')))"
    )
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    assert python("-c", code, str(tmp_path), timeout=120, PYTHONPATH=path).stdout.split() == ["1", "1"]


@pytest.mark.parametrize(
    "place", ["data [v2]", "data [v2]/*.tar", "data [v2]/a0.tar", "data*/*.tar", "data [v2]/a{0..0}.tar"]
)
def test_what_exists_is_taken_as_it_is_before_it_is_a_pattern(tmp_path, place):
    """Catches brackets that are read as a choice of letters, and images that change their split with its name."""
    validation = []
    for folder in ("data [v2]", "plain"):
        (tmp_path / folder).mkdir()
        write_shard(tmp_path / folder / "a0.tar", [file for i in range(9) for file in sample(str(i), 10 * i)])
        used = place.replace("data [v2]", folder)
        data = web_dataset(str(tmp_path / used), 16, str(tmp_path / "cache"), validation_share=0.5)
        assert data.skipped == {}
        validation.append(data.split("validation").captions)
    assert validation[0] == validation[1] or "*/" in place


@pytest.mark.parametrize("source", [image_folder, web_dataset])
@pytest.mark.parametrize("place", ["x" * 5000, "a/" * 3000, "~nouser/x", "a\0b", "", 2024, "{0..%s}.tar" % ("9" * 5000),
                                   "{0..99999999999}.tar", "{9..0}.tar"])  # fmt: skip
def test_a_source_that_is_not_there_is_one_sentence(source, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LanternError, match=r"give a|name a folder"):
        source(place, 16, "cache")


def test_names_in_foreign_files_do_not_reach_a_terminal_as_they_are(tmp_path, caplog):
    """Catches a name that clears the screen, or adds a line of its own to the list."""
    in_shard(tmp_path, [*sample("1", 10), ("\x1b[2J\n2.png", picture(5))])
    listed = next((tmp_path / "cache").glob("list-*/skipped.txt")).read_text()
    assert len(listed.splitlines()) == 1
    assert "\x1b" not in listed + caplog.text
