"""Settings that one command hands to another are read as they were meant, in folders of any name."""

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from lantern.runtime.home import override

VALUES = [
    Path("/home/jürgen/lantern"), Path("/a/lantern-main (1)/x"), Path("/a b/c,d=e#f&g'h"), '/say "hi"', 3, 0.5, None,
    True, ["wood", "sand, wet"], "a/plain-path_1.ckpt",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_setting_is_read_back_by_hydra(value):
    """Catches a demo that fails below a folder with a letter or a sign of Hydra's grammar in its name."""
    key = "seed" if isinstance(value, int | float) else "hydra.run.dir"  # a folder 3 is a text
    read = OverridesParser.create().parse_override(override(key, value))
    assert (read.key_or_group, read.value()) == (key, str(value) if isinstance(value, Path) else value)


def test_a_plain_path_stays_readable():
    assert override("drafter.checkpoint", Path("/a/b-1.2")) == "drafter.checkpoint=/a/b-1.2"
