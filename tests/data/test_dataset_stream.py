"""Data sets that `datasets` streams: read in order, once, and never stopped by one image. No network is needed: files
are here, or on a server of this machine."""

import io
import os
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar
from zipfile import ZipFile

import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from support.shards import picture, values_of, write_parquet

from lantern.data.dataset_stream import hub_images
from lantern.data.image_sets import HubImages
from lantern.data.prompts import load_prompts
from lantern.data.splits import UnusableImageError
from lantern.errors import LanternError
from lantern.training.tables.tokens import TokenTable


class Codes(torch.nn.Module):
    """Of four codes an image: its brightness."""

    codebook = torch.zeros(256, 2)

    def encode(self, images):
        return (images[:, 0, :2, :2] * 255).round().long().flatten(1)


CELL = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def write_parts(folder, parts=3, each=5):
    folder.mkdir(exist_ok=True)
    for part in range(parts):
        values = [10 * (each * part + i) for i in range(each)]
        cells = [{"bytes": picture(value), "path": None} for value in values]
        write_parquet(folder / f"{part}.parquet", pyarrow.array(cells, CELL), [f"caption {value}" for value in values])
    return folder


def opened(tmp_path, files, name="parquet", **options):
    """As conf/data/hub.yaml gives it; all images are for training."""
    settings = {"data_files": files, "validation_share": 0.0} | options
    return hub_images(name, 16, str(tmp_path / "cache"), **{k: v for k, v in settings.items() if v is not None})


ALL = {f"caption {value}": value for value in range(0, 150, 10)}


def test_every_image_is_read_and_split_by_its_row(tmp_path):
    files = str(write_parts(tmp_path / "data") / "*.parquet")
    assert values_of(opened(tmp_path, files).split("train")) == ALL
    assert values_of(opened(tmp_path, None, data_dir=str(tmp_path / "data")).split("train")) == ALL
    some = opened(tmp_path, files, validation_share=0.3)
    parts = [values_of(some.split(name)) for name in ("train", "validation")]
    assert parts[0] | parts[1] == ALL
    assert all(parts)


def test_what_cannot_be_used_is_listed_and_the_rest_becomes_tokens(tmp_path, caplog):
    """An image that is none, an empty cell, a cell with a path, a caption that is missing or no text, a torn file."""
    folder, secret = write_parts(tmp_path / "data"), tmp_path / "secret.png"
    secret.write_bytes(picture(99))
    cells = [b"no image", None, b"", picture(200), picture(201), picture(202)]
    cells = [{"bytes": cell, "path": str(secret) if cell is None else None} for cell in cells]
    captions = ["caption none", "caption secret", "caption empty", None, " ", "caption 202"]
    write_parquet(folder / "3.parquet", pyarrow.array(cells, CELL), captions)
    write_parquet(folder / "4.parquet", [{"bytes": picture(1), "path": None}] * 9, [str(i) for i in range(9)])
    torn = (folder / "4.parquet").read_bytes()
    (folder / "4.parquet").write_bytes(torn[:40] + bytes(len(torn) - 400) + torn[-360:])
    data = opened(tmp_path, str(folder / "*.parquet"))
    assert sorted(name.rsplit("/")[-1] for name in data.skipped) == ["3-3", "3-4", "4"]
    table = TokenTable(data, Codes(), str(tmp_path / "cache")).split("train")
    found = {item["caption"]: int(item["tokens"][0]) for item in table}
    assert found == ALL | {"caption 202": 202}
    listed = next((tmp_path / "cache").glob("tokens-train-*/skipped.txt")).read_text().splitlines()
    assert [line.split(":")[0].rsplit("/")[-1] for line in listed] == ["3-0", "3-1", "3-2"]
    assert "skipped 3 of 19" in caplog.text
    with pytest.raises(UnusableImageError):
        data.split("train")[len(data.split("train")) - 4]


def test_changed_files_are_another_data_set(tmp_path):
    """Catches tokens of images that are no longer there."""
    folder = write_parts(tmp_path / "data")
    first = opened(tmp_path, str(folder / "*.parquet")).fingerprint
    assert opened(tmp_path, str(folder / "*.parquet")).fingerprint == first
    write_parquet(folder / "1.parquet", [{"bytes": picture(3), "path": None}], ["caption 3"])
    os.utime(folder / "1.parquet", (1, 1))
    assert opened(tmp_path, str(folder / "*.parquet")).fingerprint != first


class Counting(SimpleHTTPRequestHandler):
    """Serves files, in parts where asked to, and counts the bytes."""

    sent: ClassVar[Counter] = Counter()

    def log_message(self, *_):
        pass

    def do_GET(self):
        with open(self.translate_path(self.path), "rb") as file:
            content = file.read()
        start, end = 0, len(content)
        if asked := self.headers.get("Range"):
            first, last = asked.removeprefix("bytes=").split("-")
            start, end = int(first), min(end, int(last or end) + 1)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        self.wfile.write(content[start:end])
        self.sent[self.path] += end - start


@pytest.fixture
def address(tmp_path):
    """Of this test's folder."""
    Counting.sent = Counter()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Counting, directory=str(tmp_path)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def noise_picture(seed: int) -> bytes:
    stream = io.BytesIO()
    pixels = torch.randint(0, 256, (512, 512, 3), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    Image.fromarray(pixels.numpy()).save(stream, "BMP")
    return stream.getvalue()


def test_files_of_another_machine_are_streamed_once_into_tokens(tmp_path, address):
    """Catches images that are fetched for their captions, again for each table, or again behind a killed run."""
    cells = [{"bytes": noise_picture(i), "path": None} for i in range(64)]
    (tmp_path / "data").mkdir()
    table = pyarrow.table({"image": cells, "caption": [f"caption {i}" for i in range(64)]})
    pyarrow.parquet.write_table(table, tmp_path / "data" / "0.parquet", row_group_size=16)
    size = (tmp_path / "data" / "0.parquet").stat().st_size
    files = f"{address}/data/0.parquet"
    data = opened(tmp_path, files)
    assert Counting.sent.total() < size / 2  # of captions; an image takes 790 KB
    made = TokenTable(data, Codes(), str(tmp_path / "cache")).split("train")
    assert len(made) == 64
    assert Counting.sent.total() < 2.5 * size  # with what is read ahead of each group of rows
    before = Counting.sent.total()
    again = TokenTable(opened(tmp_path, files), Codes(), str(tmp_path / "cache")).split("train")
    assert again.captions == made.captions
    assert Counting.sent.total() - before < size / 2


def test_prompts_are_a_column_of_a_table_wherever_it_is(tmp_path, address, monkeypatch):
    (tmp_path / "p.csv").write_text('id,Prompt,prompt\n1,"a ring, blue",x\n2,two\xa0discs,y\n')
    (tmp_path / "p.jsonl").write_text('{"prompt": "a", "tag": 1}\n\n{"prompt": "b"}\n')
    pyarrow.parquet.write_table(pyarrow.table({"captions": [["one", "two"], ["three"]]}), tmp_path / "p.parquet")
    monkeypatch.chdir(tmp_path)
    for place in ("", f"{address}/"):
        assert load_prompts(f"{place}p.csv", "lists") == ["x", "y"]
        assert load_prompts(f"{place}p.csv:Prompt", "lists") == ["a ring, blue", "two\xa0discs"]
        assert load_prompts(f"{place}p.jsonl", "lists") == ["a", "b"]
        assert load_prompts(f"{place}p.parquet:captions", "lists") == ["one", "three"]
        with pytest.raises(LanternError, match=r"p\.csv"):
            load_prompts(f"{place}p.csv:none", "lists")
    (tmp_path / "user" / "set").mkdir(parents=True)
    os.rename(tmp_path / "p.parquet", tmp_path / "user" / "set" / "train.parquet")
    assert load_prompts("user/set:train:captions", "lists") == ["one", "three"]
    with pytest.raises(LanternError, match="has no column prompt or caption or text, only captions"):
        load_prompts("user/set:train", "lists")
    (tmp_path / "user" / "table").mkdir()
    (tmp_path / "user" / "table" / "train.csv").write_text("Prompt,Note\na ring,x\n,y\na disc,z\n")
    assert load_prompts("user/table:train:Prompt", "lists") == ["a ring", "a disc"]


@pytest.mark.parametrize("name", ["imagefolder", "folder itself", "archive"])
def test_images_that_datasets_finds_in_folders_and_archives_are_read(tmp_path, name, monkeypatch):
    folder = tmp_path / "set"
    folder.mkdir()
    for value in (10, 20):
        (folder / f"{value}.png").write_bytes(picture(value))
    lines = "".join(f'{{"file_name": "{value}.png", "text": "caption {value}"}}\n' for value in (10, 20))
    (folder / "metadata.jsonl").write_text(lines)
    options = {"data_dir": str(folder)}
    if name == "archive":
        with ZipFile(tmp_path / "set.zip", "w") as archive:
            for file in folder.iterdir():
                archive.write(file, file.name)
        name, options = "imagefolder", {"data_files": str(tmp_path / "set.zip")}
    elif name == "folder itself":
        name, options = str(folder), {}
    data = hub_images(name, 16, str(tmp_path / "cache"), validation_share=0.0, **options)
    assert values_of(data.split("train")) == {"caption 10": 10, "caption 20": 20}


def test_a_damaged_member_of_an_archive_costs_its_own_image_alone(tmp_path):
    """Catches the image of another row for one that is asked for again behind the damage."""
    lines = "".join(f'{{"file_name": "{i}.png", "text": "caption {i}"}}\n' for i in range(6))
    with ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.writestr("metadata.jsonl", lines)
        for i in range(6):
            archive.writestr(f"{i}.png", picture(10 * i))
    whole = bytearray((tmp_path / "set.zip").read_bytes())
    whole[whole.index(picture(30)) + 60] ^= 255
    (tmp_path / "set.zip").write_bytes(whole)
    options = {"data_files": str(tmp_path / "set.zip"), "validation_share": 0.0}
    split = hub_images("imagefolder", 16, str(tmp_path / "cache"), **options).split("train")
    for index in (3, 5, 1, 4, 3, 2, 0):
        if split.captions[index] == "caption 3":
            with pytest.raises(UnusableImageError, match="CRC"):
                split[index]
        else:
            assert f"caption {split[index]['image'][0, 0, 0] // 10}" == split.captions[index]


def test_what_is_no_data_set_of_images_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "a.parquet")
    for name, files in (("parquet", "a.parquet"), ("nobody/nothing", None), ("parquet", "b.parquet")):
        with pytest.raises(LanternError) as caught:
            opened(tmp_path, files, name)
        assert "\n" not in str(caught.value)
    with pytest.raises(LanternError, match=r"has no column title, only image, caption"):
        opened(tmp_path, str(write_parts(tmp_path / "data") / "*.parquet"), caption_column="title")


def test_the_label_of_a_class_model_is_its_caption(tmp_path):
    table = pyarrow.table({"image": [{"bytes": picture(9), "path": None}], "label": [7]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert values_of(opened(tmp_path, str(tmp_path / "a.parquet"), num_classes=10).split("train")) == {"7": 9}
    assert not opened(tmp_path, str(tmp_path / "a.parquet"), num_classes=8).skipped
    with pytest.raises(LanternError, match="is no class from 0 to 6"):  # of the same cache
        opened(tmp_path, str(tmp_path / "a.parquet"), num_classes=7)
    with pytest.raises(LanternError, match="no column caption or text or prompt or txt"):
        opened(tmp_path, str(tmp_path / "a.parquet"))


def test_labels_of_folders_are_imagenets_classes(tmp_path):
    """As data=imagefolder numbers them. Catches the place among the folders that are there."""
    folder, options = tmp_path / "set", {"validation_share": 0.0, "num_classes": 1000}
    for value, synset in ((10, "n01443537"), (20, "n02123045")):
        (folder / synset).mkdir(parents=True)
        (folder / synset / "a.png").write_bytes(picture(value))
    data = hub_images("imagefolder", 16, str(tmp_path / "cache"), data_dir=str(folder), **options)
    assert values_of(data.split("train")) == {"1": 10, "281": 20}


def test_a_cells_path_outside_of_the_data_set_is_not_opened(tmp_path):
    """Catches a foreign table that makes local files into images, by a scheme in front of them too."""
    secret = tmp_path / "secret.png"
    secret.write_bytes(picture(99))
    (tmp_path / "set").mkdir()
    last = f"file://{secret}::{tmp_path}/set/train.parquet"
    for place in (secret, f"file://{secret}", f"simplecache::file://{secret}", last):
        table = pyarrow.table({"image": [{"bytes": None, "path": str(place)}], "caption": ["a"]})
        pyarrow.parquet.write_table(table, tmp_path / "set" / "train.parquet")
        data = opened(tmp_path, str(tmp_path / "set" / "*.parquet"))
        with pytest.raises(UnusableImageError, match="no file of the data set"):
            data.split("train")[0]
        with pytest.raises(LanternError, match="no file of the data set"):
            HubImages(str(tmp_path / "set"), "train")[0:1]
