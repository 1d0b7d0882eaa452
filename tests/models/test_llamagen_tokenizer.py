"""The VQ tokenizer against the released format: golden miniature (stored without the unused 65536-entry usage buffer,
which the test puts back) and the shapes of the full-size checkpoints."""

import json

import pytest
import torch
from safetensors import safe_open
from support.paths import GOLDEN

from lantern.models.checkpoints import load_strictly, read_weights
from lantern.models.llamagen.tokenizer import VQTokenizer

TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def tokenizer() -> VQTokenizer:
    model = VQTokenizer(32, [1, 2], [1, 2], codebook_size=64, code_dim=8, z_channels=32)
    state = read_weights(GOLDEN / "llamagen_vq_tiny.pt") | {"quantize.codebook_used": torch.zeros(65536)}
    load_strictly(model, state, "the miniature", "")
    return model.requires_grad_(False)


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    with safe_open(GOLDEN / "llamagen_vq_tiny_expected.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def test_tokens_are_those_of_the_reference(tokenizer, expected):
    """Catches symmetric padding in downsampling and a search among unnormalised codes."""
    tokens = tokenizer.encode((expected["image"] + 1) / 2)
    assert torch.equal(tokens, expected["indices"].flatten(1))


def test_images_are_those_of_the_reference(tokenizer, expected):
    """Catches a missing attention block and a look-up of unnormalised codes."""
    made = tokenizer.render(tokenizer.codebook[expected["indices"]])
    assert (made - expected["decoded"]).abs().max() < TOLERANCE


def test_decoding_clamps_what_render_made(tokenizer, expected):
    made = tokenizer.decode(expected["indices"].flatten(1))
    assert torch.allclose(made, ((expected["decoded"] + 1) / 2).clamp(0, 1), atol=TOLERANCE)


@pytest.mark.parametrize(("name", "multipliers"), [("VQ-16", [1, 1, 2, 2, 4]), ("VQ-8", [1, 2, 2, 4])])
def test_full_size_names_and_shapes_are_the_released_ones(name, multipliers):
    with torch.device("meta"):
        model = VQTokenizer(128, multipliers, multipliers, codebook_size=16384, code_dim=8, z_channels=256)
    released = json.loads((GOLDEN / "llamagen_vq_shapes.json").read_text())[name]
    released.pop("quantize.codebook_used", None)
    assert {key: list(value.shape) for key, value in model.state_dict().items()} == released


def test_sides_that_do_not_divide_are_one_clear_error(tokenizer):
    with pytest.raises(ValueError, match=r"image sides \(16, 17\) must be multiples of 2"):
        tokenizer.encode(torch.zeros(1, 3, 16, 17))


def test_tokens_that_fill_no_square_are_one_clear_error(tokenizer):
    with pytest.raises(ValueError, match="5 tokens do not fill a square grid"):
        tokenizer.decode(torch.zeros(1, 5, dtype=torch.long))
