"""Ids: of code, whatever its prose; and of what older files hold."""

import pytest
import torch

from lantern.errors import CheckpointError
from lantern.identity import code_hash, digest, files_hash, image_key, request_hash, state_hash, tensor_hash
from lantern.models.llamagen.weights_folder import check_made_for


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
