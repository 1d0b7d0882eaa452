"""GLM-Image's pixels by diffusers' own classes, at tiny random sizes."""

import sys

import pytest
import torch
from hydra.utils import instantiate
from support.documented import write_diffusion
from support.families import CODES, FAMILIES, SIDE, config

from lantern.errors import LanternError
from lantern.models.hf.diffusion_images import DiffusionImages

GRID = (2, 3)


def test_equal_tokens_are_equal_pictures_and_the_preview_is_not_read(tmp_path):
    """Catches tokens of the preview in the picture's place, and rows exchanged with columns."""
    write_diffusion(tmp_path)
    images = DiffusionImages(str(tmp_path), torch.randn(CODES, 8), GRID, torch.float32)
    tokens = torch.randint(CODES, (1, 10), generator=torch.Generator().manual_seed(0)).repeat(3, 1)
    tokens[1, :4] = 0  # the preview
    tokens[2, 9] = (tokens[2, 9] + 1) % CODES
    with torch.inference_mode():
        found = images.decode(tokens)
        alone = images.decode(tokens[2:])
    assert found.shape == (3, 3, 64, 96)
    assert found.min() >= 0
    assert found.max() <= 1
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    torch.testing.assert_close(alone[0], found[2])
    pipeline = images._pipeline
    codes = pipeline._upsample_token_ids(tokens[0, 4:], *GRID)  # as it treats those of its own AR stage
    noise, size = torch.Generator().manual_seed(0), {"height": 64, "width": 96}
    own = pipeline(["a red ring"], prior_token_ids=codes, generator=noise, output_type="pt", **size).images
    torch.testing.assert_close(found[:1], own)


def test_a_target_decodes_by_it_where_the_yaml_says_so(tmp_path):
    write_diffusion(tmp_path / "pixels")
    FAMILIES["glm_image"].make(tmp_path / "model")
    cfg = config(FAMILIES["glm_image"], tmp_path / "model", f"model.diffusion={tmp_path / 'pixels'}")
    target = instantiate(cfg.model)
    assert target.decode(target.empty_tokens(1, target.num_tokens)).shape == (1, 3, 32 * SIDE, 32 * SIDE)


def test_without_diffusers_the_setting_is_refused_by_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(LanternError, match=r"model\.diffusion=zai-org/GLM-Image needs diffusers"):
        DiffusionImages("zai-org/GLM-Image", torch.zeros(1, 1), GRID, torch.float32)
