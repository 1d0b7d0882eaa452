"""Embedded scenes as a user's own images."""

from pathlib import Path

from PIL import Image

from lantern.data.scenes import render


def write_captioned_scenes(folder: Path, count: int) -> None:
    """Writes `count` pictures into a new folder, each with its caption in a text file beside it."""
    folder.mkdir()
    for seed in range(count):
        image, scene = render(seed)
        Image.fromarray(image).save(folder / f"{seed}.png")
        (folder / f"{seed}.txt").write_text(scene.caption)
