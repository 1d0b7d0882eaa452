"""Sets of images in files: the same pixels by whatever source, and in the layouts that other tools read."""

import json
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lantern.data.image_sets import arrays_of, holds_images, open_images, read_statistics, write_layout
from lantern.data.prompts import load_prompts
from lantern.errors import LanternError

COUNT, SIDE = 12, 8


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=(COUNT, SIDE, SIDE, 3), dtype=np.uint8)


def save_folder(folder: Path, pixels: np.ndarray) -> Path:
    folder.mkdir(parents=True)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{number}.png")
    return folder


def save_parquet(folder: Path, pixels: np.ndarray) -> str:
    """A local data set, which `datasets` streams as it does one of the Hub."""
    from datasets import Dataset, Features, Value
    from datasets import Image as ImageColumn

    rows = {"label": list(range(len(pixels))), "picture": [Image.fromarray(image) for image in pixels]}
    data = Dataset.from_dict(rows, Features({"label": Value("int64"), "picture": ImageColumn()}))
    (folder / "sets" / "own").mkdir(parents=True)
    data.to_parquet(folder / "sets" / "own" / "train.parquet")
    return "sets/own"


def save(kind: str, folder: Path, pixels: np.ndarray) -> str | Path:
    if kind == "folder":
        return save_folder(folder / "images", pixels)
    if kind == "hub":
        return f"{save_parquet(folder, pixels)}:train"
    np_save = np.savez if kind == "npz" else np.savez_compressed
    np_save(folder / "images.npz", pixels)
    return folder / "images.npz"


@pytest.mark.parametrize("kind", ["folder", "npz", "compressed npz", "hub"])
def test_a_set_is_its_pixels_in_order_by_any_slice(kind, pixels, tmp_path, monkeypatch):
    """Catches 10.png before 2.png, an offset by the header, and a stream not begun anew for an earlier slice."""
    monkeypatch.chdir(tmp_path)
    images = open_images(save(kind, tmp_path, pixels))
    expected = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    assert len(images) == COUNT
    assert all(torch.equal(images[part], expected[part]) for part in map(slice, (0, 5, 2, 0), (5, 20, 4, 12)))
    assert np.array_equal(np.stack(list(arrays_of(images))), pixels)
    if kind == "folder":  # a folder of prompts is in the same order
        for number, file in enumerate(images.files):
            (tmp_path / "texts").mkdir(exist_ok=True)
            (tmp_path / "texts" / f"{file.stem}.txt").write_text(f"a {number}")
        assert load_prompts(str(tmp_path / "texts"), tmp_path) == [f"a {number}" for number in range(COUNT)]


def test_a_part_of_a_split_is_its_first_images(pixels, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = open_images(f"{save_parquet(tmp_path, pixels)}:train[:5]")
    assert len(images) == 5
    assert images[0:9].shape[0] == 5
    assert len(open_images(f"sets/own:train[:{COUNT + 5}]")) == COUNT


def test_images_of_several_sizes_need_a_size(pixels, tmp_path):
    """Catches images that are stretched, or resized without a word: either moves every distance."""
    folder = save_folder(tmp_path / "images", pixels)
    Image.new("RGB", (20, 10)).save(folder / "wide.png")
    with pytest.raises(LanternError, match="size=256"):
        open_images(folder)[0:20]
    images = open_images(folder)
    assert len(images[0:COUNT]) == COUNT
    with pytest.raises(LanternError, match="size=256"):  # also of another batch
        images[COUNT : COUNT + 1]
    assert open_images(folder, 6)[0:20].shape == (13, 3, 6, 6)


def test_a_large_jpeg_has_the_pixels_of_its_png(tmp_path):
    """Catches images that are scored at a fraction of their size, as JPEG files alone can be decoded."""
    noise = Image.fromarray(np.random.default_rng(0).integers(256, size=(512, 512, 3), dtype=np.uint8))
    noise.save(tmp_path / "a.jpg")
    Image.open(tmp_path / "a.jpg").save(tmp_path / "b.png")
    jpeg, png = open_images(tmp_path, 32)[0:2]
    assert torch.equal(jpeg, png)


def broken(folder: Path, kind: str) -> str | Path:
    if kind == "empty folder":
        return folder
    path = folder / "made.npz"
    if kind == "damaged image":
        (folder / "one.png").write_bytes(b"\x89PNG but no more")
        return folder
    arrays = {"statistics": {"mu": np.zeros(2), "sigma": np.eye(2)}, "floats": {"arr_0": np.zeros((2, 4, 4, 3))}}
    if kind in arrays:
        np.savez(path, **arrays[kind])
    return {"missing": folder / "none", "unknown": "no such set"}.get(kind, path)


@pytest.mark.parametrize("kind", ["empty folder", "damaged image", "statistics", "floats", "missing", "unknown"])
def test_what_holds_no_images_is_one_sentence(kind, tmp_path):
    with pytest.raises(LanternError) as caught:
        open_images(broken(tmp_path, kind))[0:1]
    assert "\n" not in str(caught.value)


def test_statistics_are_those_of_the_file_beside_images_or_alone(pixels, tmp_path):
    """ADM's files hold both, under the names of pytorch-fid and clean-fid."""
    both, images = tmp_path / "both.npz", tmp_path / "images.npz"
    np.savez(both, pixels, mu=np.arange(3, dtype=np.float32), sigma=np.eye(3), mu_s=np.zeros(5))
    np.savez(images, pixels)
    mean, covariance = read_statistics(both)
    assert (mean.tolist(), covariance.tolist()) == ([0, 1, 2], np.eye(3).tolist())
    assert mean.dtype == np.float64
    assert holds_images(both)
    assert read_statistics(images) is None
    np.savez(both, mu=np.zeros(3), sigma=np.eye(4))
    with pytest.raises(LanternError, match="sigma"):
        read_statistics(both)


STATISTICS = {"mu": np.zeros(8), "sigma": np.eye(8)}


def refused_or_whole(path: Path, pixels: np.ndarray) -> None:
    with suppress(LanternError):
        if found := read_statistics(path):
            assert [array.tolist() for array in found] == [array.tolist() for array in STATISTICS.values()]
        else:
            assert np.array_equal(np.stack([*arrays_of(open_images(path))]), pixels)


@pytest.mark.parametrize("kind", ["NaN in mu", "NaN in sigma"])
def test_statistics_that_are_no_numbers_are_refused(kind, tmp_path):
    """Catches `frechet nan`."""
    features = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)  # fewer than features: of rank 3
    path, mean, covariance = tmp_path / "known.npz", features.mean(0), np.cov(features, rowvar=False)
    np.savez(path, mu=mean, sigma=covariance.astype(np.float32))
    assert read_statistics(path) is not None
    mean[0] *= np.nan if kind == "NaN in mu" else 1
    covariance[0, 1] *= np.nan if kind == "NaN in sigma" else 1
    np.savez(path, mu=mean, sigma=covariance)
    with pytest.raises(LanternError, match="sigma"):
        read_statistics(path)


@pytest.mark.parametrize("has_images", [True, False])
def test_a_cut_or_damaged_npz_is_one_sentence(has_images, pixels, tmp_path):
    """Catches a traceback of zipfile, zlib or numpy, wherever a byte is wrong or the file ends."""
    path = tmp_path / "known.npz"
    (np.savez if has_images else np.savez_compressed)(path, **{"arr_0": pixels} if has_images else STATISTICS)
    whole = path.read_bytes()
    content = [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(0, len(whole), 23)]
    array = zipfile.ZipFile(path).read("arr_0.npy" if has_images else "sigma.npy")
    for damaged in [*content, whole[: len(whole) // 2], whole[:-1], b""]:
        path.write_bytes(damaged)
        refused_or_whole(path, pixels)
    for end in (len(array) - 1, 60, 0):  # cut, and zipped again
        with zipfile.ZipFile(path, "w") as file:
            for name in ("arr_0",) if has_images else ("mu", "sigma"):
                file.writestr(f"{name}.npy", array[:end])
        with pytest.raises(LanternError, match="cannot be read"):
            read_statistics(path) or open_images(path)[0 : len(pixels)]


def test_adms_layout_is_one_array_of_all_images(pixels, tmp_path):
    """Read as its evaluator reads it. Catches a header that promises another shape."""
    write_layout("adm", tmp_path / "out", open_images(save_folder(tmp_path / "in", pixels)), [{}], [0] * COUNT)
    (made,) = (tmp_path / "out").iterdir()
    assert np.array_equal(np.load(made)["arr_0"], pixels)


def test_genevals_layout_has_a_folder_for_each_prompt_with_its_metadata_and_images(pixels, tmp_path):
    """Catches images under another prompt, and metadata without the fields that its evaluator judges by."""
    prompts = [{"prompt": f"a {number}", "tag": "counting"} for number in range(3)]
    images = open_images(save_folder(tmp_path / "in", pixels))
    write_layout("geneval", tmp_path / "out", images, prompts, [number % 3 for number in range(COUNT)])
    for number, prompt in enumerate(prompts):
        folder = tmp_path / "out" / f"{number:05d}"
        assert json.loads((folder / "metadata.jsonl").read_text()) == prompt
        made = [np.asarray(Image.open(folder / "samples" / f"{copy:04d}.png")) for copy in range(4)]
        assert np.array_equal(np.stack(made), pixels[number::3])
    with pytest.raises(LanternError, match="would be judged along"):
        write_layout("geneval", tmp_path / "out", images, prompts[:1], [0] * COUNT)
    with pytest.raises(LanternError, match="give prompts"):
        write_layout("geneval", tmp_path / "other", images, [{"prompt": ""}], [0] * COUNT)


def test_dpgs_layout_is_a_grid_of_each_prompts_images_under_its_name(pixels, tmp_path):
    """Catches a grid whose columns are its rows."""
    named = [("a", "COCOval_1"), ("b", "partiprompts2"), ("c", "")]
    prompts = [{"prompt": text, "name": name} for text, name in named]
    images = open_images(save_folder(tmp_path / "in", pixels))
    write_layout("dpg", tmp_path / "out", images, prompts, [number // 4 for number in range(COUNT)])
    made = {file.name for file in (tmp_path / "out").iterdir()}
    assert made == {"COCOval_1.png", "partiprompts2.png", "00002.png"}
    grid = np.asarray(Image.open(tmp_path / "out" / "partiprompts2.png"))
    assert np.array_equal(grid[:SIDE, SIDE:], pixels[5])
    assert np.array_equal(grid[SIDE:, :SIDE], pixels[6])
    with pytest.raises(LanternError, match="'cat' is the name of several"):
        write_layout("dpg", tmp_path / "more", images, [{"prompt": "a", "name": "cat"}] * 2, [0, 1] * (COUNT // 2))
