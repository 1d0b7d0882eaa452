"""Stored scenes equal the rendered ones, and a cache is complete or absent."""

import numpy as np
import pytest

from lantern.errors import LanternError
from lantern.scenes import scene_splits
from lantern.scenes.scene_splits import RenderedScenes, Scenes

SIZES = {"num_train": 6, "num_validation": 3, "num_test": 2, "num_novel": 2}


def test_stored_scenes_equal_rendered_ones(tmp_path):
    rendered = RenderedScenes(**SIZES).split("train")
    for num_workers in (1, 2):  # two: workers must keep the order
        stored = Scenes(**SIZES, cache_dir=str(tmp_path / str(num_workers)), num_workers=num_workers).split("train")
        assert stored.captions == rendered.captions
        assert stored.fingerprint == rendered.fingerprint
        for mine, fresh in zip(stored, rendered, strict=True):
            assert np.array_equal(mine.pop("image"), fresh.pop("image"))
            assert mine == fresh


def test_a_build_that_was_interrupted_is_done_again(tmp_path, monkeypatch):
    def interrupted(items):
        yield next(make_rows(items))
        raise KeyboardInterrupt

    make_rows = scene_splits._rows
    monkeypatch.setattr(scene_splits, "_rows", interrupted)
    data = Scenes(**SIZES, cache_dir=str(tmp_path), num_workers=1)
    with pytest.raises(KeyboardInterrupt):
        data.split("train")
    monkeypatch.undo()
    assert len(data.split("train")) == SIZES["num_train"]
    assert not list(tmp_path.glob(".*unfinished"))


def test_another_size_or_seed_is_another_cache_and_the_same_is_built_once(tmp_path, monkeypatch):
    small = Scenes(**SIZES, cache_dir=str(tmp_path), num_workers=1).split("train")
    assert len(Scenes(**SIZES | {"num_train": 7}, cache_dir=str(tmp_path), num_workers=1).split("train")) == 7
    other = Scenes(**SIZES, cache_dir=str(tmp_path), seed=1, num_workers=1).split("train")
    assert other[0]["caption"] != small[0]["caption"] or (other[0]["image"] != small[0]["image"]).any()
    monkeypatch.setattr(scene_splits, "_rows", None)
    assert len(Scenes(**SIZES, cache_dir=str(tmp_path), num_workers=1).split("train")) == 6


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LanternError, match=r"paths\.cache_dir"):
        Scenes(**SIZES, cache_dir=str(tmp_path / "file" / "below")).split("train")


@pytest.mark.parametrize("wrong", [{"num_train": 0}, {"seed": 100}])
def test_sizes_outside_the_seed_ranges_are_an_error(wrong):
    with pytest.raises(LanternError, match=r"data\.num_train"):
        RenderedScenes(**SIZES | wrong).split("train")
