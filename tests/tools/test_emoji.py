"""The folder of emoji: which pictures, in which split, under which captions. Packages are stand-ins."""

import json

import pytest

from lantern.cli.composing import composed
from lantern.errors import LanternError
from lantern.runtime.home import CONFIG_FOLDER
from tools import emoji


def test_a_picture_held_out_has_its_name_and_its_studio_in_training():
    studios = list(emoji.STUDIOS)
    places = {(name, studio): emoji.split_of(name, studio, studios[:count])
              for count in (1, 2, 6) for name in map(str, range(200)) for studio in studios[:count]}  # fmt: skip
    held_out = [key for key, split in places.items() if split == "validation"]
    assert 30 < len(held_out) < 90
    assert len({name for name, _ in held_out}) == len(held_out)
    assert {studio for _, studio in held_out} == set(studios)


def test_pictures_have_names_as_captions(tmp_path, monkeypatch, capsys):
    def icons(package, *_):
        names = ["bee", "red-apple"] + ["bee-dark"] * (package == "noto")
        return {"icons": {name: {"body": name} for name in names}, "width": 8, "height": 8}

    monkeypatch.setattr(emoji, "fetch", icons)
    monkeypatch.setattr(emoji, "draw", lambda icon, _: icon["body"].encode() if icon["body"] != "bee" else None)
    monkeypatch.setattr("sys.argv", ["emoji", str(tmp_path), "--pictures-only"])
    emoji.main()
    pictures = tmp_path / "pictures"
    lines = [json.loads(line) for line in (pictures / "metadata.jsonl").read_text().splitlines()]
    assert {line["caption"] for line in lines} == {f"{studio} red apple" for studio in emoji.STUDIOS}
    assert all((pictures / line["file_name"]).read_text() == "red-apple" for line in lines)
    assert "6 pictures" in capsys.readouterr().out


def test_every_part_is_a_training_of_train_py(tmp_path):
    for name, settings in emoji.parts(tmp_path / "my pictures").items():
        composed(CONFIG_FOLDER, "train", settings)
        assert any(given.startswith("task=") for given in settings), name


def test_a_package_of_other_content_is_refused(tmp_path, monkeypatch):
    """Also one that comes from a mirror: npm alone knows where packages are."""
    npm = tmp_path / "npm"
    npm.write_text('#!/bin/sh\necho "$2" > "$5/package.tgz"\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(LanternError, match=r"@iconify-json/noto@1\.2\.9 is not the file that was tried"):
        emoji.fetch("noto", "1.2.9", "00")
