"""The sampling settings that come with each model=: those its authors published, or the reference settings."""

import pytest
from support.configs import composed
from support.paths import CONF

SETTINGS = {  # temperature, top-k, top-p, strength of guidance
    "anole": (1.0, 2000, 1.0, 3.0),
    "emoji": (1.0, 0, 1.0, 2.0),
    "emu3": (1.0, 2048, 1.0, 3.0),
    "emu35": (1.0, 5120, 1.0, 5.0),
    "glm_image": (0.9, 0, 0.75, 1.0),
    "janus_pro": (1.0, 0, 1.0, 5.0),
    "janus_pro_7b": (1.0, 0, 1.0, 5.0),
    "liquid": (0.99, 4096, 0.96, 7.0),
    "simplear": (1.0, 0, 1.0, 6.0),
    "llamagen": (1.0, 0, 1.0, 2.0),
    "llamagen_c2i_b": (1.0, 0, 1.0, 2.0),
    "llamagen_c2i_l": (1.0, 0, 1.0, 2.0),
    "llamagen_c2i_xl": (1.0, 0, 1.0, 1.75),
    "llamagen_c2i_xxl": (1.0, 0, 1.0, 1.75),
    "llamagen_c2i_3b": (1.0, 0, 1.0, 1.65),
    "llamagen_t2i_stage1": (1.0, 1000, 1.0, 7.5),
    "llamagen_t2i_stage2": (1.0, 1000, 1.0, 7.5),
    "lumina_mgpt": (1.0, 2000, 1.0, 3.0),
    "lumina_mgpt2": (1.0, 4096, 1.0, 4.0),
    "x_omni": (1.0, 0, 1.0, 1.0),
}
CONTINUOUS = {"scenes_continuous"}  # draws no codes


def test_every_model_of_codes_is_in_the_table():
    assert SETTINGS.keys() == {path.stem for path in (CONF / "model").glob("*.yaml")} - CONTINUOUS


@pytest.mark.parametrize(
    ("model", "command"),
    [*((model, "evaluate") for model in SETTINGS), ("llamagen_c2i_xl", "train"), ("anole", "train")],
)
def test_a_model_comes_with_its_published_sampling(model, command):
    """Catches a setting that is missing from a yaml, or that the reference settings overwrite."""
    sampling = composed(command, f"model={model}").sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.cfg_scale) == SETTINGS[model]
