"""Meta's VQGAN against the golden miniature, and the shapes of the full-size one."""

import pytest
import torch
from safetensors import safe_open
from support.paths import GOLDEN

from lantern.errors import CheckpointError
from lantern.models.chameleon import ChameleonVQGAN, load_vqgan

TINY = {"channels": 32, "multipliers": [1, 2], "z_channels": 32, "codebook_size": 64, "code_dim": 32}


@pytest.fixture(scope="module")
def tokenizer() -> ChameleonVQGAN:
    return load_vqgan(str(GOLDEN), "chameleon_vqgan_tiny.ckpt", **TINY, device="cpu")


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    with safe_open(GOLDEN / "chameleon_vqgan_tiny_expected.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def test_tokens_are_those_of_the_reference(tokenizer, expected):
    """Catches symmetric padding in downsampling and a search among normalised codes."""
    assert torch.equal(tokenizer.encode((expected["image"] + 1) / 2), expected["indices"].reshape(1, -1))


def test_images_are_those_of_the_reference(tokenizer, expected):
    """Catches attention outside the middle and levels run in ascending order."""
    made = tokenizer.render(tokenizer.codebook[expected["indices"]][None])
    assert (made - expected["decoded"]).abs().max() < 1e-5
    shown = tokenizer.decode(expected["indices"].reshape(1, -1))
    assert torch.allclose(shown, ((expected["decoded"] + 1) / 2).clamp(0, 1), atol=1e-5)


def test_a_codebook_of_another_size_is_one_clear_error():
    with pytest.raises(CheckpointError, match=r"embedding\.weight \(64, 32\) instead of \(128, 32\)"):
        load_vqgan(str(GOLDEN), "chameleon_vqgan_tiny.ckpt", **TINY | {"codebook_size": 128}, device="cpu")


def test_full_size_shapes_are_metas():
    """Catches wrong default widths: an f = 16 tokenizer of 8,192 codes of 256 dimensions, five levels of 128 to 512."""
    with torch.device("meta"):
        model = ChameleonVQGAN()
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert shapes["quantize.embedding.weight"] == (8192, 256)
    assert shapes["encoder.conv_blocks.4.res.0.conv1.weight"] == (512, 256, 3, 3)
    assert shapes["decoder.conv_blocks.0.upsample.conv.weight"] == (512, 512, 3, 3)
    assert "decoder.conv_blocks.4.upsample.conv.weight" not in shapes
    assert model.downsampling == 16


def test_sides_and_counts_that_do_not_fit_are_clear_errors(tokenizer):
    with pytest.raises(ValueError, match=r"image sides \(16, 17\) must be multiples of 2"):
        tokenizer.encode(torch.zeros(1, 3, 16, 17))
    with pytest.raises(ValueError, match="5 tokens do not fill a square grid"):
        tokenizer.decode(torch.zeros(1, 5, dtype=torch.long))
