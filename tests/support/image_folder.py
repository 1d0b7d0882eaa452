"""A folder of captioned images, written and opened."""

from PIL import Image

from lantern.data.imagefolder import image_folder


def folder_of(path, names, mode="RGB"):
    for name in names:
        Image.new(mode, (40, 24), "red" if mode == "RGB" else 0).save(path / name)
        (path / name).with_suffix(".txt").write_text(f"caption of {name}\n")
    return path


def opened(path, tmp_path, **options):
    return image_folder(str(path), 16, str(tmp_path / "cache"), num_workers=1, **options)
