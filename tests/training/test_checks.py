"""Settings that no training works with are refused by name before it begins; so are captions that no target reads."""

import re
from dataclasses import replace

import pytest
from omegaconf import OmegaConf
from support.recipes import feature_lk
from support.tiny_tasks import MemorySplits
from support.tiny_weights import write_tiny_weights

from lantern.errors import LanternError
from lantern.training.data_module import TrainingData
from lantern.training.optimizers import muon_with_adamw
from lantern.training.run.budget import WarmupCosine
from lantern.training.run.run_state import data_hash
from lantern.training.tables import tokens
from tools.miniature import write_captioned_scenes


@pytest.mark.parametrize(("name", "make"), [
    ("recipe.depth=0", lambda: feature_lk(depth=0)),
    ("recipe.unroll_from=1.5", lambda: replace(feature_lk(), unroll_from=1.5)),
    ("batches.batch_size=0", lambda: TrainingData(MemorySplits(), 0, seed=0)),
    ("callbacks.schedule.warmup_steps=-1", lambda: WarmupCosine(-1)),
    ("task.lr=nan", lambda: muon_with_adamw(None, [], float("nan"), 0.1, 0.0)),
])  # fmt: skip
def test_a_part_refuses_what_is_out_of_its_range(name, make):
    with pytest.raises(LanternError, match=f"^{re.escape(name)} is out of range"):
        make()


def test_the_hash_of_the_data_is_that_of_its_captions():
    cfg = OmegaConf.create({"task_name": "target"})
    four, again, five = (data_hash(cfg, TrainingData(MemorySplits(count), 2, seed=0)) for count in (4, 4, 5))
    assert four == again != five


@pytest.mark.parametrize("command", ["train.py", "lantern/training/prepare.py"])
def test_captions_of_other_words_end_a_training_and_its_preparation_before_images_are_encoded(
    command, refused, tmp_path, monkeypatch
):
    write_tiny_weights(tmp_path / "weights")
    write_captioned_scenes(tmp_path / "images", 8)
    for file in (tmp_path / "images").glob("*.txt"):
        file.write_text(f"a zebra and {file.stem}")
    monkeypatch.setattr(tokens, "encode", lambda *_: pytest.fail("images are encoded"))
    said = refused(
        command, "data=imagefolder", f"data.folder={tmp_path}/images",
        f"paths.weights={tmp_path}/weights", f"paths.cache_dir={tmp_path}/cache", f"paths.runs={tmp_path}/runs",
        "data.validation_share=0.4",
    )  # fmt: skip
    assert "'zebra'" in said
