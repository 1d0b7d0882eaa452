"""LlamaGen's VQ tokenizer and Meta's VQGAN against golden miniatures and the shapes of the released files."""

import json

import pytest
import torch
from safetensors import safe_open
from support.paths import GOLDEN

from lantern.errors import CheckpointError, LanternError
from lantern.models.chameleon import ChameleonVQGAN, load_vqgan
from lantern.models.checkpoints import load_strictly, read_weights
from lantern.models.hf.code_colors import CodeColors
from lantern.models.hf.families import cosmos_images, fsq_codebook
from lantern.models.llamagen.tokenizer import VQTokenizer

TINY = {"channels": 32, "multipliers": [1, 2], "z_channels": 32, "codebook_size": 64, "code_dim": 32}


def llamagen() -> VQTokenizer:
    model = VQTokenizer(32, [1, 2], [1, 2], codebook_size=64, code_dim=8, z_channels=32)
    state = read_weights(GOLDEN / "llamagen_vq_tiny.pt") | {"quantize.codebook_used": torch.zeros(65536)}
    load_strictly(model, state, "the miniature", "")
    return model.requires_grad_(False)


def chameleon() -> ChameleonVQGAN:
    return load_vqgan(str(GOLDEN), "chameleon_vqgan_tiny.ckpt", **TINY, device="cpu")


@pytest.mark.parametrize(("load", "name"), [(llamagen, "llamagen_vq"), (chameleon, "chameleon_vqgan")])
def test_tokens_and_images_are_those_of_the_reference(load, name):
    """Catches symmetric padding in downsampling, a search among codes normalised or not, levels in another order."""
    tokenizer = load()
    with safe_open(GOLDEN / f"{name}_tiny_expected.safetensors", "pt") as file:
        image, indices, decoded = (file.get_tensor(part) for part in ("image", "indices", "decoded"))
    tokens = indices.reshape(len(image), -1)
    assert torch.equal(tokenizer.encode((image + 1) / 2), tokens)
    made = tokenizer.render(tokenizer.codebook[indices].reshape(len(image), *indices.shape[-2:], -1))
    torch.testing.assert_close(made, decoded, rtol=0, atol=2e-5)
    torch.testing.assert_close(tokenizer.decode(tokens), ((decoded + 1) / 2).clamp(0, 1), rtol=0, atol=2e-5)


@pytest.mark.parametrize(("name", "multipliers"), [("VQ-16", [1, 1, 2, 2, 4]), ("VQ-8", [1, 2, 2, 4])])
def test_llamagens_full_size_names_and_shapes_are_the_released_ones(name, multipliers):
    with torch.device("meta"):
        model = VQTokenizer(128, multipliers, multipliers, codebook_size=16384, code_dim=8, z_channels=256)
    released = json.loads((GOLDEN / "llamagen_vq_shapes.json").read_text())[name]
    released.pop("quantize.codebook_used", None)
    assert {key: list(value.shape) for key, value in model.state_dict().items()} == released


def test_chameleons_full_size_shapes_are_metas():
    """Catches wrong default widths: an f = 16 tokenizer of 8,192 codes of 256 dimensions, five levels of 128 to 512."""
    with torch.device("meta"):
        model = ChameleonVQGAN()
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert shapes["quantize.embedding.weight"] == (8192, 256)
    assert shapes["encoder.conv_blocks.4.res.0.conv1.weight"] == (512, 256, 3, 3)
    assert shapes["decoder.conv_blocks.0.upsample.conv.weight"] == (512, 512, 3, 3)
    assert "decoder.conv_blocks.4.upsample.conv.weight" not in shapes
    assert model.downsampling == 16


def test_sides_that_do_not_fit_are_a_clear_error():
    with pytest.raises(LanternError, match=r"image sides \(16, 17\) must be multiples of 2"):
        llamagen().encode(torch.zeros(1, 3, 16, 17))


def test_the_codes_of_a_finite_scalar_quantisation_are_its_points():
    """Against its definition, digit by digit. Catches digits in the other order, which would name other neighbours, and
    an even number of levels spread over [-1, 1], whose steps are others."""
    levels = (4, 3, 2)
    points = fsq_codebook(levels)
    for code in range(24):
        left, expected = code, []
        for level in levels:
            expected.append((left % level - level // 2) / (level // 2))
            left //= level
        assert points[code].tolist() == pytest.approx(expected)


def test_a_scripted_decoder_makes_pixels_of_codes(tmp_path):
    class Decoder(torch.nn.Module):
        def forward(self, codes: torch.Tensor) -> torch.Tensor:  # [B, 1, h, w] -> [B, 3, 1, 16 h, 16 w]
            grey = codes.to(torch.float32) / 12 - 1
            return grey[:, None].expand(-1, 3, -1, -1, -1).repeat_interleave(16, 3).repeat_interleave(16, 4)

    torch.jit.script(Decoder()).save(str(tmp_path / "decoder.jit"))
    images = cosmos_images(str(tmp_path / "decoder.jit"), (2, 3), fsq_codebook((4, 3, 2)))
    pixels = images.decode(torch.tensor([[0, 4, 8, 12, 16, 20]]))
    assert pixels.shape == (1, 3, 32, 48)
    assert pixels[0, 0, ::16, ::16].flatten().tolist() == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6])
    (tmp_path / "none.jit").write_bytes(b"no script")
    with pytest.raises(CheckpointError, match=r"none\.jit is no TorchScript file"):
        cosmos_images(str(tmp_path / "none.jit"), (2, 3), fsq_codebook((4, 3, 2)))


def test_near_codes_have_near_colours():
    codebook = torch.linspace(-1, 1, 16)[:, None] * torch.tensor([[1.0, 0.5, 0.2, 0.0]])
    images = CodeColors(codebook, (2, 2), pixels=1)
    colours = images.decode(torch.arange(16).view(4, 4))[:, :, 0, 0]  # of the codes 0, 4, 8 and 12
    gaps = (colours - colours[:1]).norm(dim=1)
    assert gaps.tolist() == sorted(gaps.tolist())
    assert gaps[-1] > 0.2
