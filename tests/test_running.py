"""What a run is told and how it fails: numbers of its own for the row, and one sentence for what no run can do."""

import errno

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from test_sweeps import composed

from lantern.api import CONFIG_FOLDER
from lantern.command import user_error
from lantern.errors import LanternError
from lantern.running import own_numbers, run_setting


@pytest.mark.parametrize(("settings", "expected"), [
    (["tree=eagle2", "tree.total=40"], {"tree.total": 40, "tree.depth": 5, "tree.width": 10}),
    (["drafter=jacobi", "tree=eagle2"], {"drafter.length": 15}),
    (["drafter=refined_jacobi"], {"drafter.length": 15, "drafter.passes": 1, "drafter.share": 0.7}),
    (["tree=auto"], {}),
    (["drafter=none"], {}),
])  # fmt: skip
def test_rows_name_the_numbers_of_what_drafts(settings, expected):
    """Catches settings that differ in a tree's size or a window's passes and cannot be told apart in the table."""
    cfg = composed(*settings)
    assert own_numbers(cfg, instantiate(cfg.drafter), instantiate(cfg.tree)) == expected


def test_shards_must_draft_alike(tmp_path):
    """Catches shards that each find another tree, whose images then do not count."""
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        cfg = compose("evaluate", ["tree=auto", "shards=2", "dtype=float32", "device=cpu", "prompts=demo"])
    with pytest.raises(LanternError, match=r"shards=2 would each find a tree of their own by tree=auto"):
        run_setting(cfg, "llamagen", tmp_path, None)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_one_sentence_whoever_meets_it():
    """Catches a traceback out of a library's own writing, hours into a run."""
    full = OSError(errno.ENOSPC, "No space left on device", "runs/x/latest.ckpt")
    assert "cannot write runs/x/latest.ckpt (No space left on device)" in str(user_error(full))
    wrapped = RuntimeError("while saving")
    wrapped.__cause__ = full
    assert "make room" in str(user_error(wrapped))
    assert user_error(OSError(errno.ENOENT, "No such file", "x")) is None
