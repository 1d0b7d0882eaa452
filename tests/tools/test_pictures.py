"""Pictures of docs: by a browser that is found, and by joining grids."""

import pytest
from PIL import Image

from lantern.errors import LanternError
from tools.pictures import photograph, stack


def test_grids_stand_one_above_the_other(tmp_path):
    for name, size in {"one": (4, 2), "two": (6, 3)}.items():
        (tmp_path / name).mkdir()
        Image.new("RGB", size, (255, 3, 4)).save(tmp_path / name / "grid.png")
    stack([tmp_path / "one", tmp_path / "two"], tmp_path / "both.png")
    both = Image.open(tmp_path / "both.png")
    assert both.size == (6, 5)
    assert both.getpixel((0, 4)) == (254, 2, 4)


def test_a_missing_browser_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LanternError, match="no browser was found"):
        photograph(tmp_path / "page.html", (10, 10), tmp_path / "page.png")
