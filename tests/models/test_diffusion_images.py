"""GLM-Image's pixels by diffusers' own classes, at tiny random sizes."""

import sys
from functools import partial

import diffusers
import pytest
import torch
from hydra.utils import instantiate
from support.families import FAMILIES, SIDE, config
from transformers import AutoTokenizer, ByT5Tokenizer, GlmImageProcessor, T5Config, T5EncoderModel
from transformers.models.glm_image.image_processing_pil_glm_image import GlmImageImageProcessorPil

import lantern
from lantern.errors import LanternError
from lantern.models.hf.diffusion_images import DiffusionImages

CODES, GRID = 24, (2, 3)


def write_pipeline(folder, **others) -> None:
    """others: processor and vision_language_encoder, of the AR stage."""
    torch.manual_seed(0)
    sizes = {"num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 2, "in_channels": 4, "out_channels": 4}
    transformer = diffusers.GlmImageTransformer2DModel(
        patch_size=2, text_embed_dim=16, time_embed_dim=16, condition_dim=8, prior_vq_quantizer_codebook_size=CODES,
        **sizes,
    )  # fmt: skip
    vae = diffusers.AutoencoderKL(
        block_out_channels=(8, 8, 8, 8), latent_channels=4, norm_num_groups=4, latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4, down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4,
    )  # fmt: skip
    text = T5EncoderModel(T5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2))
    parts = {"tokenizer": ByT5Tokenizer(), "text_encoder": text, "vae": vae}
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler()
    others = {"processor": None, "vision_language_encoder": None} | others
    diffusers.GlmImagePipeline(transformer=transformer, scheduler=scheduler, **parts, **others).save_pretrained(folder)


def test_an_accelerated_pipeline_makes_the_same_picture_in_fewer_passes(tmp_path):
    """As its documentation calls it. The codes are certain: top_k is 1, and both prompts have an image."""
    model = FAMILIES["glm_image"].make(tmp_path / "checkpoint")
    words = tmp_path / "checkpoint" / "processor"
    text = AutoTokenizer.from_pretrained(words, padding_side="left", pad_token="<bos>")
    template = "{% for m in messages %}{% for c in m['content'] %}{{ c['text'] }}{% endfor %}{% endfor %}"
    processor = GlmImageProcessor(GlmImageImageProcessorPil(), text, chat_template=template)
    model.generation_config.update(
        do_sample=True, top_k=1, suppress_tokens=[CODES, CODES + 1], eos_token_id=None, pad_token_id=0
    )
    write_pipeline(tmp_path / "whole", processor=processor, vision_language_encoder=model)
    pipe = diffusers.GlmImagePipeline.from_pretrained(tmp_path / "whole")
    size = {"height": 64, "width": 64, "num_inference_steps": 2, "output_type": "pt"}
    call = partial(pipe, ["a red ring", "a blue sphere on wood"], **size)
    own = call(generator=torch.Generator().manual_seed(0)).images
    lantern.accelerate(pipe)
    made = call(generator=torch.Generator().manual_seed(0)).images
    assert pipe.vision_language_encoder.generate.statistics.tokens_per_step > 1
    torch.testing.assert_close(made, own, atol=0, rtol=0)
    lantern.restore(pipe)
    assert "generate" not in vars(pipe.vision_language_encoder)


def test_equal_tokens_are_equal_pictures_and_the_preview_is_not_read(tmp_path):
    """Catches tokens of the preview in the picture's place, and rows exchanged with columns."""
    write_pipeline(tmp_path)
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
    write_pipeline(tmp_path / "pixels")
    FAMILIES["glm_image"].make(tmp_path / "model")
    cfg = config(FAMILIES["glm_image"], tmp_path / "model", f"model.diffusion={tmp_path / 'pixels'}")
    target = instantiate(cfg.model)
    assert target.decode(target.empty_tokens(1, target.num_tokens)).shape == (1, 3, 32 * SIDE, 32 * SIDE)


def test_without_diffusers_the_setting_is_refused_by_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(LanternError, match=r"model\.diffusion=zai-org/GLM-Image needs diffusers"):
        DiffusionImages("zai-org/GLM-Image", torch.zeros(1, 1), GRID, torch.float32)
