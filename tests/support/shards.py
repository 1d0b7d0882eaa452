"""Folders, WebDataset shards and parquet files of plain pictures, written and opened."""

import io
import tarfile

import pyarrow
import pyarrow.parquet
from PIL import Image

from lantern.data.imagefolder import image_folder
from lantern.data.webdataset import web_dataset


def picture(value: int, mode: str = "RGB", format: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (20, 20), value if mode == "L" else (value,) * len(Image.new(mode, (1, 1)).getbands())).save(
        stream, format
    )
    return stream.getvalue()


def write_shard(path, members: list[tuple[str, bytes]]):
    with tarfile.open(path, "w") as shard:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            shard.addfile(info, io.BytesIO(content))
    return path


def sample(key: str, value: int) -> list[tuple[str, bytes]]:
    return [(f"{key}.png", picture(value)), (f"{key}.txt", f"caption {value}".encode())]


def opened(source, tmp_path, **options):
    return web_dataset(str(source), 16, str(tmp_path / "cache"), validation_share=0.0, **options)


def values_of(split) -> dict[str, int]:
    return {item["caption"]: int(item["image"][0, 0, 0]) for item in split}


def write_parquet(path, cells: list, captions: list, **columns):
    table = pyarrow.table({"image": cells, "caption": captions} | columns)
    pyarrow.parquet.write_table(table, path, row_group_size=2)
    return path


def folder_of(path, names):
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 24), "red").save(path / name)
        (path / name).with_suffix(".txt").write_text(f"caption of {name}\n")
    return path


def opened_folder(path, tmp_path, **options):
    return image_folder(str(path), 16, str(tmp_path / "cache"), **options)
