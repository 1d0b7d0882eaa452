"""Captions and prompts that a target does not read are told before anything is encoded or trained."""

import signal
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from support.commands import refusal
from support.configs import composed
from support.tiny_tasks import MemorySplits
from support.tiny_weights import write_tiny_weights

from lantern.errors import LanternError
from lantern.models.conditioners import ClassLabels, WordFeatures
from lantern.studies.miniature import write_captioned_scenes
from lantern.training.data_module import TrainingData
from lantern.training.run import run_folder as run_steps
from lantern.training.run.checks import CAPTIONS, PROMPTS, check_captions, check_decoding, data_hash
from lantern.training.run.run_folder import ClaimRunFolder
from lantern.training.tables import tokens

WORDS = ["a", "red", "ring", "on"]


def test_all_unknown_words_are_told_and_a_target_is_given_its_vocabulary():
    """Catches words that are told one a start, after hours of training."""
    images, conditioner = MemorySplits(4), WordFeatures(["a", "ring"], dim=4, length=8)
    with pytest.raises(LanternError, match=r"^3 unknown words: 'on', 'red', 'wood'; this model knows a ring$"):
        check_captions(conditioner, images, "drafter")
    given = r"""give 'task\.vocabulary=\["a", "on", "red", "ring", "wood"\]'$"""
    with pytest.raises(LanternError, match=given):
        check_captions(conditioner, images, "target")
    check_captions(WordFeatures([*WORDS, "wood"], dim=4, length=8), images, "target")
    with pytest.raises(LanternError, match="is no class of this model"):
        check_captions(ClassLabels(3), images, "drafter")
    check_captions(lambda prompts: None, images, "drafter")  # a text encoder


def test_a_run_does_not_go_on_with_other_captions(tmp_path):
    """Catches a checkpoint's position in another order of images, and half a training on other ones."""
    (tmp_path / "checkpoints").mkdir()
    torch.save({"step": 1}, tmp_path / "checkpoints" / "latest.ckpt")
    config = {"task_name": "target"}
    cfg = OmegaConf.create(config)
    before, same, other = (data_hash(cfg, TrainingData(MemorySplits(count), 2, seed=0)) for count in (4, 4, 5))
    ClaimRunFolder(tmp_path, config, "cpu", before, str(tmp_path / "checkpoints" / "latest.ckpt")).begin(
        SimpleNamespace(loggers=[])
    )
    assert run_steps.unfinished_checkpoint(tmp_path, config, same)
    said = rf"unfinished run on other data: training captions was {before[CAPTIONS]}, is {other[CAPTIONS]}; put them"
    with pytest.raises(LanternError, match=said):
        run_steps.unfinished_checkpoint(tmp_path, config, other)


def test_prompts_that_a_sweep_of_recipes_cannot_decode_with_end_it_at_its_start(tmp_path):
    """Catches every recipe trained, and then no drafter decoded with."""
    (tmp_path / f"{PROMPTS}.txt").write_text("a blue cube\n")
    known = WordFeatures(WORDS, dim=4, length=8)
    with pytest.raises(LanternError, match=r"prompts=scenes, with 2 unknown words: 'blue', 'cube'.*sweep\.decoding"):
        check_decoding(known, {}, tmp_path)
    with pytest.raises(LanternError, match="1 unknown words: 'sand'"):
        check_decoding(known, {"prompts": ["sand"]}, tmp_path)
    check_decoding(known, {"prompts": ["a ring"]}, tmp_path)
    with pytest.raises(LanternError, match="split=dev leaves none of 1 prompts"):
        check_decoding(known, {"prompts": ["ring"], "split": "dev"}, tmp_path)
    check_decoding(ClassLabels(3), {}, tmp_path)  # which names its own prompts
    assert composed("evaluate").prompts == PROMPTS


COMMANDS = [("train.py", "target", "give 'task.vocabulary=["), ("lantern/training/prepare.py", "drafter", "zebra")]


@pytest.mark.parametrize(("command", "task", "remedy"), COMMANDS)
def test_captions_of_other_words_end_a_training_and_its_preparation_before_images_are_encoded(
    command, task, remedy, tmp_path, monkeypatch
):
    write_tiny_weights(tmp_path / "weights")
    write_captioned_scenes(tmp_path / "images", 8)
    for file in (tmp_path / "images").glob("*.txt"):
        file.write_text(f"a zebra and {file.stem}")
    monkeypatch.setattr(run_steps, "silence_warnings", lambda: None)  # which would outlast the test
    monkeypatch.setattr(tokens, "encode", lambda *_: pytest.fail("images are encoded"))
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    try:
        said = refusal(
            monkeypatch, command, f"task={task}", "data=imagefolder", f"data.folder={tmp_path}/images",
            f"paths.weights={tmp_path}/weights", f"paths.cache_dir={tmp_path}/cache", "logger.wandb=null",
            f"paths.runs={tmp_path}/runs", "data.num_workers=1", "data.validation_share=0.4",
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "'zebra'" in said
    assert remedy in said
