"""Ids: of code, whatever its prose; and of what older files hold."""

import pytest

from lantern.errors import CheckpointError, LanternError
from lantern.identity import (
    user_code,
)
from lantern.models.llamagen.weights_folder import check_made_for
from lantern.reporting.merge import check_alike


def test_a_released_config_with_sixteen_digits_is_checked_by_twelve(tmp_path):
    """Catches a target that is refused for the length of its hash, and one of another tokenizer that is not."""
    check_made_for({"tokens_hash": "0123456789abcdef"}, "tokens", tmp_path, tmp_path, "0123456789ab")
    with pytest.raises(CheckpointError, match="was trained on tokens 0123456789abcdef"):
        check_made_for({"tokens_hash": "0123456789abcdef"}, "tokens", tmp_path, tmp_path, "0123456789aa")


def test_the_code_of_a_users_part_is_its_module_with_what_it_imports_of_their_own(tmp_path, monkeypatch):
    """Catches an edited helper module that leaves an old result, and a comment that drops it."""
    files = {
        "my_part.py": "import torch, my_folder.tools\nfrom my_package import inner\n",
        "my_package/__init__.py": "",
    }
    files |= {"my_package/inner.py": "from . import constants\n", "my_package/constants.py": "SHARE = 1\n"}
    files |= {"my_folder/tools.py": "SIZE = 1\n"}  # without an __init__.py
    for name in ("my_package", "my_folder"):
        (tmp_path / name).mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    config = {"rules": [{"_target_": "my_part.Rule"}], "model": {"_target_": "lantern.models.llamagen.load"}}
    before = user_code(config)
    assert before.startswith("my_part ")
    (tmp_path / "my_package" / "constants.py").write_text("SHARE = 1  # all of it\n")
    assert user_code(config) == before
    (tmp_path / "my_package" / "constants.py").write_text("SHARE = 2\n")
    changed = user_code(config)
    (tmp_path / "my_folder" / "tools.py").write_text("SIZE = 2\n")
    assert len({before, changed, user_code(config), None}) == 4
    assert user_code({"model": config["model"], "optimizer": {"_target_": "torch.optim.AdamW"}}) is None


def test_rows_of_two_versions_of_a_users_code_are_not_merged(tmp_path):
    """Catches a sweep that was resumed after an edit, with points of both versions in one table."""
    row = {"model": "llamagen", "drafter": "eagle", "acceptance": "mine", "tree": "static"}
    check_alike([row | {"user_code": "mine 1, other 1"}, row | {"user_code": "other 1"}])
    with pytest.raises(LanternError, match="different code of mine"):
        check_alike([row | {"user_code": "mine 1"}, row | {"user_code": "other 1, mine 2"}])
