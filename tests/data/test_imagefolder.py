"""A user's image folder: unusual images are converted, bad ones skipped and listed, mistakes are clear errors."""

import csv
import json
import struct
import zlib
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from support.colour_profiles import SRGB, printer, screen
from support.shards import folder_of, opened_folder, picture

from lantern.data.image_io import load_image, problem_of
from lantern.data.imagefolder import SYNSETS
from lantern.errors import LanternError


def test_good_images_are_split_once_and_bad_ones_are_listed(tmp_path):
    images = folder_of(tmp_path / "images", [f"{i}.png" for i in range(12)])
    (images / "empty.jpg").touch()
    (images / "cut.png").write_bytes((images / "0.png").read_bytes()[:60])
    (images / "silent.png").write_bytes((images / "0.png").read_bytes())
    for bad in ("empty", "cut"):
        (images / f"{bad}.txt").write_text("a caption")
    data = opened_folder(images, tmp_path, validation_share=0.3)
    train, validation = data.split("train"), data.split("validation")
    assert sorted(train.captions + validation.captions) == sorted(f"caption of {i}.png" for i in range(12))
    assert {file.rsplit("/")[-1] for file in data.skipped} == {"empty.jpg", "cut.png", "silent.png"}
    assert train[0]["image"].shape == (16, 16, 3)
    assert (train[0]["image"] == [255, 0, 0]).all()


@pytest.mark.parametrize(("folders", "counts"), [
    (["train", "val"], (2, 1)), (["train", "validation"], (2, 1)), (["train", "valid", "dev"], (2, 2)),
    (["train", "test"], None), (["train"], None), (["train", "val", "more"], None),
])  # fmt: skip
def test_folders_named_train_and_validation_are_the_splits(folders, counts, tmp_path):
    """Catches validation images that are trained on: those of a folder val, taken into both splits by their hashes."""
    for folder in folders:
        names = [f"{folder}{i}.png" for i in range(2 if folder == "train" else 1)]
        folder_of(tmp_path / "images" / folder / "n01440764", names)
    data = opened_folder(tmp_path / "images", tmp_path, validation_share=0.0)
    if counts is None:
        with pytest.raises(LanternError, match="falls into validation"):
            data.split("validation")
        return
    (tmp_path / "images" / "metadata.jsonl").write_text("no JSON\n")  # names no image, and so no folder of one
    data = opened_folder(tmp_path / "images", tmp_path, validation_share=0.0)
    train, validation = data.split("train").captions, data.split("validation").captions
    assert (len(train), len(validation)) == counts
    assert all(caption.startswith("caption of train") for caption in train)


def test_every_kind_of_pixel_becomes_rgb(tmp_path):
    grey16 = Image.fromarray(np.full((20, 20), 0x8000, np.uint16))
    clear = Image.new("RGBA", (20, 20), (255, 0, 0, 0))
    expected = {
        "grey.png": (Image.new("L", (20, 20), 128), 128),
        "grey16.png": (grey16, 128),
        "dark16.png": (Image.fromarray(np.full((20, 20), 0x00FF, np.uint16)), 0),
        "grey32.tif": (Image.fromarray(np.full((20, 20), 128, np.int32)), 128),  # not 128 / 256
        "large32.tif": (Image.fromarray(np.full((20, 20), 0x8000, np.int32)), 128),
        "clear.png": (clear, 255),  # transparent pixels show a white ground, not the colour hidden under them
        "palette.gif": (Image.new("P", (20, 20), 0), 0),
        "cmyk.jpg": (Image.new("CMYK", (20, 20), (0, 0, 0, 0)), 255),
    }
    for name, (image, value) in expected.items():
        image.save(tmp_path / name)
        pixels = load_image((tmp_path / name).read_bytes(), 16)
        assert pixels.shape == (16, 16, 3)
        assert np.abs(pixels.astype(int) - value).max() <= 1, name
    Image.fromarray(np.full((20, 20), 0.5, np.float32)).save(tmp_path / "share.tif")
    assert "floating-point" in problem_of((tmp_path / "share.tif").read_bytes, 16)
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = 255
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert load_image((tmp_path / "wide.png").read_bytes(), 16).min() > 200  # the central square, not squeezed


BGR, GRB = (screen(SRGB[:, order]) for order in ([2, 1, 0], [1, 0, 2]))  # primaries exchanged


@pytest.mark.parametrize(("mode", "suffix", "colour", "profile", "seen"), [
    ("RGB", "png", (255, 0, 0), BGR, (0, 0, 255)),
    ("RGB", "tif", (0, 255, 0), GRB, (255, 0, 0)),
    ("RGBA", "png", (255, 0, 0, 0), BGR, (255, 255, 255)),
    ("RGB", "png", (255, 0, 0), BGR[:200], (255, 0, 0)),  # damaged
    ("CMYK", "tif", (0, 255, 255, 0), BGR, (255, 0, 0)),  # of other colours than the image's
    ("CMYK", "jpg", (255, 0, 0, 0), printer({(1, 0, 0, 0): (138, 209, 198)}), (255, 0, 0)),  # a cyan that is red
    ("CMYK", "tif", (0, 0, 255, 0), printer({(0, 0, 1, 0): (75, 196, 16)}), (0, 0, 255)),  # a yellow that is blue
])  # fmt: skip
def test_a_colour_profile_is_applied(mode, suffix, colour, profile, seen, tmp_path):
    """Catches a picture of which only lantern sees other colours than any viewer."""
    Image.new(mode, (8, 8), colour).save(tmp_path / f"a.{suffix}", icc_profile=profile)
    pixels = load_image((tmp_path / f"a.{suffix}").read_bytes(), None)
    assert np.abs(pixels.astype(int) - seen).max() <= 2


def test_an_absent_an_empty_and_a_useless_folder_are_one_clear_error_each(tmp_path):
    images = tmp_path / "images"
    with pytest.raises(LanternError, match=r"data\.folder"):
        opened_folder(images, tmp_path)
    images.mkdir()
    with pytest.raises(LanternError, match="no images in"):
        opened_folder(images, tmp_path)
    (images / "empty.png").touch()
    with pytest.raises(LanternError, match="none of the 1 images"):
        opened_folder(images, tmp_path)
    with pytest.raises(LanternError, match="validation"):
        opened_folder(folder_of(images, ["a.png"]), tmp_path, validation_share=0.0).split("validation")


def test_images_are_split_by_a_hash_of_their_path_below_the_folder(tmp_path):
    """Catches a split by the name within its folder alone, and one that depends on where the images lie."""
    hashes = {i: int.from_bytes(sha256(f"{i:03d}/image.png".encode()).digest()[:6]) / 2**48 for i in range(20)}
    for images in (tmp_path / "here", tmp_path / "moved" / "there"):
        for number in range(20):
            folder_of(images / f"{number:03d}", ["image.png"])
            (images / f"{number:03d}" / "image.txt").write_text(f"caption {number}")
        validation = opened_folder(images, tmp_path, validation_share=0.3).split("validation")
        assert sorted(validation.captions) == sorted(f"caption {i}" for i, at in hashes.items() if at < 0.3)
    assert len(validation) == 7


def test_bytes_damaged_anywhere_are_a_problem_and_never_an_exception(tmp_path):
    """In every format: decoders raise struct.error, IndexError and others beside OSError."""
    generator = np.random.default_rng(0)
    picture = Image.fromarray(generator.integers(0, 256, (40, 40, 3), dtype=np.uint8))
    for suffix in ("png", "jpg", "gif", "bmp", "webp", "tiff"):
        picture.save(tmp_path / f"whole.{suffix}")
        whole = (tmp_path / f"whole.{suffix}").read_bytes()
        assert problem_of(partial(bytes, whole), 16) == ""
        problems = []
        for _ in range(40):
            damaged = bytearray(whole[: int(generator.integers(len(whole)))])
            for place in generator.integers(0, max(1, len(damaged)), 8):
                damaged[place : place + 1] = bytes(generator.integers(0, 256, 1, dtype=np.uint8))
            problems.append(problem_of(partial(bytes, damaged), 16))
        assert sum(map(bool, problems)) > 12, suffix


def test_an_image_that_claims_a_huge_size_is_listed_and_not_decoded(tmp_path):
    Image.new("L", (20, 20)).save(tmp_path / "small.png")
    small = (tmp_path / "small.png").read_bytes()
    header = b"IHDR" + struct.pack(">II", 20_000, 20_000) + small[24:29]
    huge = small[:12] + header + struct.pack(">I", zlib.crc32(header)) + small[33:]
    assert "exceeds limit" in problem_of(lambda: huge, 16)


def test_names_that_occur_twice_are_two_images_and_a_second_caption_is_reported(tmp_path, caplog):
    images = tmp_path / "images"
    for place in ("one", "two"):
        folder_of(images / place, ["a.png"])
    (images / "one" / "a.jpg").write_bytes((images / "one" / "a.png").read_bytes())
    lines = [{"file_name": "two/a.png", "text": text} for text in ("first", "second")]
    (images / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = opened_folder(images, tmp_path, validation_share=0.0)
    assert sorted(data.split("train").captions) == ["caption of a.png", "caption of a.png", "first"]
    assert "line 2 names two/a.png again" in caplog.text


def test_a_changed_image_is_listed_anew(tmp_path):
    """Catches a stale index: the split would show a new image with an old image's caption or problem."""
    images = folder_of(tmp_path / "images", ["a.png", "b.png"])
    assert not opened_folder(images, tmp_path).skipped
    (images / "b.png").write_bytes(b"no longer an image")
    assert list(opened_folder(images, tmp_path).skipped) == [str(images / "b.png")]
    written = list((tmp_path / "cache").glob("list-*/skipped.txt"))
    assert "b.png" in written[0].read_text()


def write_classes(folder, names, each=1):
    for value, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for copy in range(each):
            (folder / name / f"{copy}.JPEG").write_bytes(picture(10 * value, format="JPEG"))
    return folder


@pytest.mark.parametrize(("names", "numbers"), [
    (["n01440764", "n15075141", "n02085620"], ["0", "999", "151"]),  # a part of ImageNet keeps its classes
    (["7", "000", "12"], ["7", "0", "12"]),
    (["dog", "cat", "n01440764"], ["1", "0", "2"]),
])  # fmt: skip
def test_a_folder_is_the_class_of_its_images(names, numbers, tmp_path):
    """Catches the place among the folders that are there in place of the model's class."""
    data = opened_folder(write_classes(tmp_path / "images", names), tmp_path, num_classes=1000, validation_share=0.0)
    assert data.split("train").captions == [number for _, number in sorted(zip(names, numbers, strict=True))]
    assert data.skipped == {}


def test_a_class_may_have_the_name_of_a_split(tmp_path):
    data = opened_folder(write_classes(tmp_path / "images", ["car", "plane", "train"]), tmp_path, num_classes=9)
    assert data.skipped == {}


def test_a_flat_folder_of_validation_images_is_no_class(tmp_path):
    """ImageNet as it is unpacked: its validation images lie in no class folders, and classes keep their numbers."""
    write_classes(tmp_path / "images" / "train", ["n01440764", "n15075141"])
    write_classes(tmp_path / "images", ["val"])
    data = opened_folder(tmp_path / "images", tmp_path, num_classes=1000)
    assert data.split("train").captions == ["0", "999"]
    assert set(data.skipped.values()) == {"no caption"}


def test_a_caption_of_its_own_comes_before_the_folders_class(tmp_path):
    images = write_classes(tmp_path / "images", ["dog", "cat"], each=2)
    (images / "dog" / "0.txt").write_text("5")
    (images / "cat" / "metadata.csv").write_text("file_name,label,text\n1.JPEG,3,a cat\n")
    data = opened_folder(images, tmp_path, num_classes=9, caption_column="label", validation_share=0.0)
    assert data.split("train").captions == ["0", "3", "5", "1"]


def test_a_text_beside_an_image_is_no_class(tmp_path):
    """Catches a training on classes that fails at the first text."""
    images = write_classes(tmp_path / "images", ["dog", "cat"])
    (images / "dog" / "0.txt").write_text("a dog on grass")
    (images / "loose.png").write_bytes(picture(50))
    (images / "loose.txt").write_text("something")
    data = opened_folder(images, tmp_path, num_classes=9, validation_share=0.0)
    assert data.split("train").captions == ["0", "1"]
    assert list(data.skipped.values()) == ["its caption 'something' is no class from 0 to 8"]


def test_more_classes_than_the_model_has_are_one_sentence(tmp_path):
    images = write_classes(tmp_path / "images", ["n01440764", "n15075141"])
    with pytest.raises(LanternError, match="n15075141 is class 999, and the model has 20 classes"):
        opened_folder(images, tmp_path, num_classes=20)


def test_imagenets_synsets_are_sorted_as_its_classes_are():
    names = SYNSETS.read_text().split()
    assert (len(names), names) == (1000, sorted(set(names)))


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_metadata_is_read_in_every_form_beside_the_images_that_it_names(suffix, tmp_path):
    """In the folder and in one below it, with the column that is asked for, and a row that cannot be used."""
    images = tmp_path / "images"
    for place in ("", "deep/er"):
        folder_of(images / place, ["a.png", "b.png"])
        for text in (images / place).glob("*.txt"):
            text.unlink()
        rows = [{"file_name": f"{name}.png", "text": "x", "title": f"{name}, {place}"} for name in "ab"]
        rows.append({"file_name": "a.png", "text": "x", "title": None})
        path = images / place / f"metadata.{suffix}"
        if suffix == "jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        elif suffix == "csv":
            with path.open("w", newline="") as file:
                csv.DictWriter(file, rows[0], lineterminator="\n").writeheader()
                csv.DictWriter(file, rows[0]).writerows(rows)
        else:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    split = opened_folder(images, tmp_path, caption_column="title", validation_share=0.0).split("train")
    assert split.captions == ["a,", "b,", "a, deep/er", "b, deep/er"]
    assert opened_folder(images, tmp_path, validation_share=0.0).split("train").captions == ["x"] * 4


def test_a_damaged_metadata_file_is_named_and_the_others_are_read(tmp_path, caplog):
    images = folder_of(tmp_path, ["a.png"])
    (images / "metadata.parquet").write_bytes(b"PAR1 and no more")
    (images / "metadata.csv").write_bytes(b'file_name,text\nb.png,"' + b"x" * 200_000)
    data = opened_folder(images, tmp_path, validation_share=0.0)
    assert data.split("train").captions == ["caption of a.png"]
    assert [name.rsplit("/")[-1] for name in data.skipped] == ["metadata.csv", "metadata.parquet"]


def test_one_row_of_metadata_or_folder_that_cannot_be_read_stops_no_other(tmp_path, monkeypatch, caplog):
    """Catches a table that ends at its first text in another encoding, and a folder of others' that ends a data set."""
    images = folder_of(tmp_path / "images", ["1.png", "3.png", "locked/4.png"])
    names = pyarrow.array([b"1.png", b"\xff.png", b"3.png"]).view(pyarrow.string())
    table = pyarrow.table({"file_name": names, "text": ["by row 0", "by row 1", "by row 2"]})
    pyarrow.parquet.write_table(table, images / "metadata.parquet")
    listed = Path.iterdir

    def iterdir(place: Path):
        if place.name == "locked":
            raise PermissionError(13, "Permission denied")
        return listed(place)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    data = opened_folder(images, tmp_path, validation_share=0)
    assert sorted(data.split("train").captions) == ["by row 0", "by row 2"]
    assert [name.rsplit("/")[-1] for name in data.skipped] == ["metadata.parquet row 1"]
    assert "locked cannot be listed" in caplog.text
