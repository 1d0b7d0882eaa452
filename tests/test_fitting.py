"""A drafter for a model that is loaded, and drafts by it inside the model's own generate, at tiny sizes."""

import pytest
import torch
from support.families import LENGTH, SIDE
from support.generate_calls import make, own_call
from transformers import AutoTokenizer

import lantern
from lantern.errors import LanternError
from lantern.evaluation.rows import read_rows
from lantern.runtime.progress_line import ProgressLine

PROMPTS = ["a red sphere", "a blue ring on wood", "sand"]
SIZES = {"janus_pro": {}, "glm_image": {"model.image_size": 32 * SIDE, "model.preview_side": 2}}
CHANGED = {"janus_pro": "model.generation_head.vision_head.weight", "glm_image": "lm_head.weight"}
TRAINING = {
    "trainer.max_steps": 2, "trainer.val_check_interval": 2, "batches.batch_size": 4, "samples.num_images": 4,
    "batches.splits.validation.num_images": 2, "distil.validation_depth": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", ["glm_image", pytest.param("janus_pro", marks=pytest.mark.full)])
def test_a_drafter_fits_the_model_as_it_is_in_memory_and_no_other(name, tmp_path, capsys, monkeypatch):
    """Catches a drafter of the files that the model was read from, one that a call of other ids refuses (GLM-Image's
    draws some that are no codes), a row of another target, and a bar for each stage of the training."""
    shown, show = [], ProgressLine.show
    monkeypatch.setattr(
        ProgressLine, "show", lambda line, *given: shown.append((line.title, ProgressLine.whole)) or show(line, *given)
    )
    model = make(name, tmp_path / "checkpoint")
    text = AutoTokenizer.from_pretrained(tmp_path / "checkpoint" / ("processor" if name == "glm_image" else ""))
    weight = model.get_parameter(CHANGED[name])
    with torch.no_grad():
        weight.mul_(-1.0)
    settings = {"model.prefix_len": LENGTH} | SIZES[name]
    training = TRAINING | {"paths.cache_dir": str(tmp_path / "cache")}
    drafter = lantern.fit_drafter(model, text, PROMPTS, 5, tmp_path / "run", settings=settings, training=training)
    assert "trained 2 steps" in capsys.readouterr().out
    assert all(whole for title, whole in shown if title == "training")
    assert ProgressLine.whole is None
    row = read_rows(tmp_path / "run" / "evaluation" / "results.jsonl")[-1]
    assert (row["method"], row["model"], row["drafter_hash"] is None) == ("refined_jacobi", name, False)
    given = own_call(name, model)
    own = model.generate(**given)
    lantern.accelerate(model, text, method="refined_jacobi", drafter=drafter)
    assert torch.equal(model.generate(**given), own)
    assert model.generate.statistics.drafter_forwards
    with torch.no_grad():
        weight.mul_(2.0)
    with pytest.raises(LanternError, match="is for a target with target_hash="):
        model.generate(**given)
