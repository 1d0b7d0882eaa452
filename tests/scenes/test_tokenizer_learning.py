"""The tokenizer's losses, codebook and initialisation."""

from itertools import product

import pytest
import torch

from lantern.scenes.reconstruction import ReconstructionMeter, detail_by_place
from lantern.scenes.tokenizer_learning import ClusteredCodebook, texture_loss


def noise(seed: int, *shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def blur(images: torch.Tensor) -> torch.Tensor:
    """Binomial low-pass of three taps."""
    taps = torch.tensor([1.0, 2.0, 1.0]) / 4
    kernel = torch.outer(taps, taps).expand(3, 1, 3, 3)
    return torch.nn.functional.conv2d(torch.nn.functional.pad(images, (1, 1, 1, 1), mode="reflect"), kernel, groups=3)


def test_texture_loss_ignores_phase_but_not_blur():
    """Other noise of the same power has a small loss, a blurred image a large one."""
    real, other = noise(0, 2, 3, 64, 64), noise(1, 2, 3, 64, 64)
    assert texture_loss(other, real) < 0.2 * texture_loss(blur(real), real)
    detail = detail_by_place(real)
    own_unevenness = (detail / detail.mean((1, 2), keepdim=True)).log().abs().mean()
    assert float(texture_loss(real, real)) == pytest.approx(float(own_unevenness), rel=0.01)  # its spectra are equal


def test_detail_is_counted_at_its_place_and_noise_has_it_everywhere():
    """Against the definition written out at one place. Catches another period, and a border that looks uneven."""
    images = noise(0, 64, 3, 64, 64)
    found = detail_by_place(images)
    mean = found.mean(0)
    assert float(mean.max() / mean.min()) < 1.15
    grey, total = images[0].mean(0), 0.0
    for row, column in product(range(11, 64, 8), range(13, 64, 8)):
        around = grey[row - 1, column] + grey[row + 1, column] + grey[row, column - 1] + grey[row, column + 1]
        total += float(4 * grey[row, column] - around) ** 2
    assert float(detail_by_place(images[:1, :, 8:, 8:])[0, 3, 5]) == pytest.approx(total / 49, rel=1e-4)
    dots = torch.zeros(1, 3, 64, 64)
    dots[..., 3::8, 5::8] = 1
    assert detail_by_place(dots)[0].flatten().argmax() == 3 * 8 + 5


def test_an_unused_code_is_reset_to_data_and_a_used_one_is_not():
    """Catches revival that never happens, and revival of every code."""
    codes, weight, data = ClusteredCodebook(2, 4, decay=0.5), torch.eye(4)[:2].clone(), torch.eye(4)[:1].repeat(8, 1)
    codes.sums.copy_(weight)
    moved = torch.zeros(2, dtype=torch.bool)
    for _ in range(6):
        moved |= codes.update(weight, data, torch.zeros(8, dtype=torch.long), torch.Generator(), revive=True)
    assert moved.tolist() == [False, True]
    assert torch.allclose(weight[1], data[0])


def test_the_meter_reports_perfect_reconstructions_as_perfect():
    images, tokens = noise(0, 2, 3, 32, 32), torch.tensor([[0, 1], [1, 2]])
    meter = ReconstructionMeter(codebook_size=4)
    meter.update(images + 1e-3, images, tokens)
    summary = meter.summary()
    assert summary["psnr"] == pytest.approx(60, abs=0.01)
    assert summary["codes_used"] == 0.75
    assert summary["grid/unevenness"] == pytest.approx(summary["grid/unevenness_originals"], rel=1e-4)
