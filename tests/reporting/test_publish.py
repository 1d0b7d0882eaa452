"""Images of a run folder, which other processes read while they are written."""

import pytest
import torch
from PIL import Image

from lantern.reporting.publish import write_images


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
