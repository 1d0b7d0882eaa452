"""MoVQGAN under the names of its released file, against its layers one by one as ai-forever's code orders them."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lantern.errors import CheckpointError
from lantern.models.movqgan import MoVQGAN, load_movqgan

SIZES = {
    "channels": 32, "multipliers": [1, 2, 2], "num_res_blocks": 2, "z_channels": 4, "codebook_size": 24, "code_dim": 4,
}  # fmt: skip
LEVELS, BLOCKS, LOWEST = 3, 2, 2


def released_name(name: str) -> str:
    for ours, theirs in ((".res.", ".block."), ("mid.0.", "mid.block_1."), ("mid.1.", "mid.attn_1.")):
        name = name.replace(ours, theirs)
    name = name.replace("mid.2.", "mid.block_2.").replace("encoder.conv_blocks.", "encoder.down.")
    if name.startswith("decoder.conv_blocks."):
        level, rest = name.removeprefix("decoder.conv_blocks.").split(".", 1)
        name = f"decoder.up.{LEVELS - 1 - int(level)}.{rest}"
    return name


class Slow:
    """The released weights, layer by layer."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.state = state

    def conv(self, name: str, x: Tensor, **given: int) -> Tensor:
        return F.conv2d(x, self.state[f"{name}.weight"], self.state[f"{name}.bias"], **given)

    def norm(self, name: str, x: Tensor, codes: Tensor | None) -> Tensor:
        inner = name if codes is None else f"{name}.norm_layer"
        normed = F.group_norm(x, 32, self.state[f"{inner}.weight"], self.state[f"{inner}.bias"], 1e-6)
        if codes is None:
            return normed
        times = x.shape[2] // codes.shape[2]
        codes = codes.repeat_interleave(times, 2).repeat_interleave(times, 3)
        return normed * self.conv(f"{name}.conv_y", codes) + self.conv(f"{name}.conv_b", codes)

    def block(self, name: str, x: Tensor, codes: Tensor | None) -> Tensor:
        hidden = self.conv(f"{name}.conv1", F.silu(self.norm(f"{name}.norm1", x, codes)), padding=1)
        hidden = self.conv(f"{name}.conv2", F.silu(self.norm(f"{name}.norm2", hidden, codes)), padding=1)
        is_wider = f"{name}.nin_shortcut.weight" in self.state
        return hidden + (self.conv(f"{name}.nin_shortcut", x) if is_wider else x)

    def attend(self, name: str, x: Tensor, codes: Tensor | None) -> Tensor:
        normed = self.norm(f"{name}.norm", x, codes)
        query, key, value = (self.conv(f"{name}.{part}", normed).flatten(2) for part in "qkv")  # [B, C, L]
        weights = (query.transpose(1, 2) @ key * x.shape[1] ** -0.5).softmax(2)
        return x + self.conv(f"{name}.proj_out", (value @ weights.transpose(1, 2)).view_as(x))

    def middle(self, name: str, x: Tensor, codes: Tensor | None) -> Tensor:
        x = self.block(f"{name}.mid.block_1", x, codes)
        return self.block(f"{name}.mid.block_2", self.attend(f"{name}.mid.attn_1", x, codes), codes)

    def level(self, name: str, x: Tensor, codes: Tensor | None, blocks: int, is_lowest: bool) -> Tensor:
        for index in range(blocks):
            x = self.block(f"{name}.block.{index}", x, codes)
            if is_lowest:
                x = self.attend(f"{name}.attn.{index}", x, codes)
        return x

    def decode(self, tokens: Tensor) -> Tensor:  # [h, w] -> [3, H, W]
        codes = self.state["quantize.embedding.weight"][tokens].permute(2, 0, 1)[None]
        x = self.conv("decoder.conv_in", self.conv("post_quant_conv", codes), padding=1)
        x = self.middle("decoder", x, codes)
        for level in reversed(range(LEVELS)):
            x = self.level(f"decoder.up.{level}", x, codes, BLOCKS + 1, level == LOWEST)
            if level:
                x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
                x = self.conv(f"decoder.up.{level}.upsample.conv", x, padding=1)
        return self.conv("decoder.conv_out", F.silu(self.norm("decoder.norm_out", x, codes)), padding=1)[0]

    def encode(self, image: Tensor) -> Tensor:  # [3, H, W] in [-1, 1] -> [h, w]
        x = self.conv("encoder.conv_in", image[None], padding=1)
        for level in range(LEVELS):
            x = self.level(f"encoder.down.{level}", x, None, BLOCKS, level == LOWEST)
            if level < LOWEST:
                x = self.conv(f"encoder.down.{level}.downsample.conv", F.pad(x, (0, 1, 0, 1)), stride=2)
        x = F.silu(self.norm("encoder.norm_out", self.middle("encoder", x, None), None))
        z = self.conv("quant_conv", self.conv("encoder.conv_out", x, padding=1))[0]
        codebook = self.state["quantize.embedding.weight"]
        return (z[:, None] - codebook.T[..., None, None]).square().sum(0).argmin(0)


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> tuple[str, Slow]:
    torch.manual_seed(0)
    made = MoVQGAN(**SIZES)
    state = {released_name(name): value + torch.randn_like(value) / 8 for name, value in made.state_dict().items()}
    averages = {"ema_decoder.decay": torch.tensor(0.99), "loss.logvar": torch.zeros(1)}
    folder = tmp_path_factory.mktemp("movqgan")
    torch.save(state | averages, folder / "movqgan.ckpt")
    return str(folder), Slow(state)


@torch.inference_mode()
def test_pixels_and_tokens_are_those_of_the_released_layers(released):
    """Catches norms that see no codes, levels in the other order, attention elsewhere, and normalised codes."""
    folder, slow = released
    model = load_movqgan(folder, "movqgan.ckpt", device="cpu", **SIZES)
    tokens = torch.randint(24, (2, 4, 4), generator=torch.Generator().manual_seed(1))
    pixels = model.decode(tokens.flatten(1))
    expected = torch.stack([(slow.decode(grid) + 1) / 2 for grid in tokens]).clamp(0, 1)
    torch.testing.assert_close(pixels, expected, rtol=0, atol=1e-5)
    assert expected.std() > 0.05
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    found = model.encode(images)
    assert torch.equal(found, torch.stack([slow.encode(image * 2 - 1) for image in images]).flatten(1))
    assert len(found.unique()) > 1


def test_a_file_without_the_codes_norms_is_refused_by_name(released, tmp_path):
    """Catches a VQGAN's file that is taken for it, whose norms are plain."""
    state = {name: value for name, value in torch.load(f"{released[0]}/movqgan.ckpt").items() if "conv_y" not in name}
    torch.save(state, tmp_path / "movqgan.ckpt")
    with pytest.raises(CheckpointError, match=r"missing decoder\..*conv_y.* give model\.tokenizer\.checkpoint="):
        load_movqgan(str(tmp_path), "movqgan.ckpt", device="cpu", **SIZES)
