"""Ids: of code, whatever its prose; and of what older files hold."""

import pytest
import torch

from lantern.errors import CheckpointError
from lantern.identity import code_hash, code_of, digest, files_hash, image_key, request_hash, state_hash, tensor_hash
from lantern.models.llamagen.weights_folder import check_made_for

CODE = "def double(x):\n    return 2 * x\n"


def test_comments_docstrings_and_layout_do_not_change_the_code():
    assert code_of(f'"""Doubles."""\n\n# a comment\n{CODE}') == code_of(CODE)
    assert code_of('class Empty:\n    """Nothing."""') == code_of("class Empty:\n    pass")


def test_an_edited_statement_changes_the_code():
    assert code_of(CODE) != code_of(CODE.replace("2", "3"))


def test_a_released_config_with_sixteen_digits_is_checked_by_twelve(tmp_path):
    """Catches a target that is refused for the length of its hash, and one of another tokenizer that is not."""
    check_made_for({"tokens_hash": "0123456789abcdef"}, "tokens", tmp_path, tmp_path, "0123456789ab")
    with pytest.raises(CheckpointError, match="was trained on tokens 0123456789abcdef"):
        check_made_for({"tokens_hash": "0123456789abcdef"}, "tokens", tmp_path, tmp_path, "0123456789aa")


def test_all_ids_have_one_length(tmp_path):
    (tmp_path / "file").write_text("x")
    tensor, module = torch.zeros(3), torch.nn.Linear(1, 1)
    ids = [digest({"a": 1}), tensor_hash(tensor), state_hash(module), files_hash([tmp_path / "file"]), code_hash()]
    assert {len(name) for name in [*ids, image_key("images", 1), request_hash({}, {})]} == {12}
