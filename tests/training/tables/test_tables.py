import time
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from support.tiny_tasks import ARCHITECTURE, CODES, VOCABULARY, MemorySplits, Pictures, drafter_task

from lantern.data import cached_table
from lantern.errors import LanternError
from lantern.models.conditioners import WordFeatures
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import Transformer
from lantern.models.llamagen.weights_folder import load_tokenizer
from lantern.noise import gumbel_argmax
from lantern.pipeline import Pipeline
from lantern.sampling import Sampling
from lantern.training.data_module import TrainingData
from lantern.training.tables import features, tokens
from lantern.training.tables.features import FeatureSplit, FeatureTable
from lantern.training.tables.tokens import LatentTable, TableSplit, TargetSamples, TokenTable
from lantern.types import Generation


def test_a_token_table_holds_the_tokenizers_tokens_and_reads_images_once(weights, tmp_path):
    pictures = Pictures()
    tokenizer = load_tokenizer(weights / "tokenizer")
    items = TokenTable(pictures, tokenizer, str(tmp_path)).split("train")
    assert pictures.reads == 6  # the first one twice, for the estimate
    again = TokenTable(pictures, tokenizer, str(tmp_path)).split("train")
    assert pictures.reads == 7
    images = torch.from_numpy(np.stack([item["image"] for item in list(pictures.items)]))
    expected = tokenizer.encode(images.permute(0, 3, 1, 2) / 255)
    for i in range(5):
        assert torch.equal(items[i]["tokens"], expected[i])
        assert torch.equal(again[i]["tokens"], expected[i])
        assert items[i]["caption"] == f"picture {i}"


@torch.no_grad()
@pytest.mark.parametrize("table", [TokenTable, LatentTable])
def test_a_trained_decoder_leaves_tokens_and_latents_on_the_disk_as_they_are(table, weights, tmp_path):
    """Catches tables, and those of features made from them, that are made again to equal values after task=decoder."""
    pictures, tokenizer = Pictures(), load_tokenizer(weights / "tokenizer")

    def key() -> str:
        return table(pictures, tokenizer, str(tmp_path)).split("train").fingerprint

    before = key()
    for part in (tokenizer.decoder.conv_in, tokenizer.post_quant_conv):
        part.weight += 1
    assert key() == before
    assert pictures.reads == 7
    tokenizer.encoder.conv_in.weight += 1
    assert key() != before


def test_images_of_another_size_are_an_error_at_the_first_batch(target, tmp_path):
    """Catches hours of encoding for a target that wants other images."""
    with pytest.raises(LanternError, match=r"images of 8 pixels have 16 tokens, this target's have 64"):
        TokenTable(Pictures(), target.tokenizer, str(tmp_path), num_tokens=64).split("train")


def test_fewer_samples_than_captions_are_of_captions_from_all_of_the_split(target, tmp_path):
    """Catches validation on one class: class folders list their captions class by class."""
    splits = MemorySplits(12)
    splits.captions.sort()
    samples = TargetSamples(target, splits, Sampling(), str(tmp_path), 0, 4, num_images=4)
    assert samples.split("validation").captions == splits.captions[::3]
    assert len(set(splits.captions[:4])) == 1 < len(set(splits.captions[::3]))


def test_a_codebook_of_more_codes_than_a_table_holds_is_refused(target, tmp_path):
    """Catches token 65,536 that is stored as 0."""
    for count in (2**16, 2**16 + 1):
        target.vocab_size = count
        given = target, MemorySplits(2), Sampling(), str(tmp_path), 0, 2
        with pytest.raises(LanternError, match="has 65537 codes") if count > 2**16 else nullcontext():
            TargetSamples(*given)


@torch.no_grad()
def test_samples_are_the_targets_picks_under_the_noise_they_name(target, tmp_path):
    """Catches a seed of another image or split, under which agreement would be that of unrelated noise."""
    target = target.configured(2.0)
    items = TargetSamples(target, MemorySplits(4), Sampling(), str(tmp_path), seed=0, batch_size=3).split("validation")
    batch, task = torch.utils.data.default_collate(list(items)), drafter_task(target)
    laws = task._laws(task._pairs(batch))
    at = torch.arange(15)
    picks = gumbel_argmax(laws.p(slice(None), at), laws.noise(batch["noise_seed"], at))
    assert torch.equal(picks, batch["tokens"][:, 1:])


WORDS = {"vocabulary": VOCABULARY, "dim": 8, "length": 6}


@pytest.mark.parametrize(("sizes", "words"), [
    ({"dim": 32}, {}), ({"prefix_len": 7}, {}), ({}, {"seed": 1}), ({}, {"vocabulary": VOCABULARY[::-1]}),
])  # fmt: skip
def test_targets_of_other_sizes_or_words_share_no_tables(target, tmp_path, sizes, words):
    """Catches features of another random target, all of which are named by one hash."""

    def keys(sizes: dict, words: dict) -> list[str]:
        body = Transformer(**ARCHITECTURE | {"vocab_size": CODES} | sizes)
        reader = WordFeatures(**WORDS | {"length": body.prefix_len} | words)
        made = LlamaGenTarget(body, reader, target.tokenizer, 2.0, "random")
        samples = TargetSamples(made, MemorySplits(2), Sampling(cfg_scale=2.0), str(tmp_path), seed=0, batch_size=2)
        stored = FeatureTable(MemorySplits(2), made, str(tmp_path), budget_gib=1).split("train")
        return [samples.split("train").fingerprint, stored.fingerprint]

    before = keys({}, {})
    assert keys({}, {}) == before
    assert not set(keys(sizes, words)) & set(before)


class SlowCores:
    """A clock that goes on by ten seconds at each batch of features."""

    def __init__(self, monkeypatch) -> None:
        self.now, honest = 0.0, features.target_features

        def slow(*given: object) -> torch.Tensor:
            self.now += 10
            return honest(*given)

        monkeypatch.setattr(features, "target_features", slow)
        monkeypatch.setattr(features, "SHARD_BYTES", 1)  # a batch each
        for module in (cached_table, time):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)


def test_features_take_their_share_of_the_time_and_the_next_run_goes_to_steps(target, tmp_path, monkeypatch):
    """Catches features of all images, minutes beyond the time of the whole command, images of one class alone, features
    of another item, a second start that makes more, or stored ones again, and too few of them to train on."""
    splits, clock = MemorySplits(400), SlowCores(monkeypatch)
    splits.captions.sort()

    def limited(max_time: str = "00:00:04:00") -> FeatureSplit:
        return FeatureTable(splits, target, str(tmp_path / "part"), 1, None, max_time, 0.5).split("train")

    part = limited()
    assert (len(part), part.whole, clock.now) == (12 * 16, 400, 120)
    assert 60 < sum(caption == "wood" for caption in part.captions) < 132
    whole = FeatureTable(splits, target, str(tmp_path / "whole"), 1).split("train")
    assert whole.captions == splits.captions
    wanted = {tuple(item["tokens"].tolist()): item for item in whole}
    for item, caption in zip(part, part.captions, strict=True):
        assert torch.equal(item["features"], wanted[tuple(item["tokens"].tolist())]["features"])
        assert item["caption"] == caption
    clock.now = 0.0
    assert (len(limited()), clock.now) == (12 * 16, 0)
    assert len(FeatureTable(splits, target, str(tmp_path / "new"), 1, None, "00:00:00:02", 0.5).split("train")) == 32


def test_samples_take_their_share_of_the_time_and_the_next_run_draws_no_more(target, tmp_path, monkeypatch):
    """Catches minutes of drawing before a training of five, images of one class, and others at the next start."""
    splits, clock = MemorySplits(64), SlowCores(monkeypatch)
    splits.captions.sort()

    def slow(pipeline: Pipeline, prompts: list[str], *given: object, **named: object) -> Generation:
        clock.now += len(prompts)
        return generate(pipeline, prompts, *given, **named)

    def drawn(max_time: str, share: float | None = 0.5) -> TableSplit:
        clock.now = 0.0
        return TargetSamples(*given, None, 1, max_time, share).split("validation")

    generate, given = Pipeline.generate, (target, splits, Sampling(), str(tmp_path), 0, 32)
    monkeypatch.setattr(Pipeline, "generate", slow)
    part = drawn("00:00:00:40")
    assert (len(part), clock.now) == (16, 16)  # eight more would end behind the share, of 20 seconds
    assert len(set(part.captions)) == 2
    again = drawn("00:00:10:00")
    assert (len(again), clock.now, again.fingerprint) == (16, 0, part.fingerprint)
    assert torch.equal(again[15]["tokens"], part[15]["tokens"])
    assert len(drawn("00:00:00:40", None)) == 64


def test_images_are_encoded_for_their_share_of_the_time_in_random_order(weights, tmp_path, monkeypatch):
    """Catches a folder of a hundred thousand images, encoded for hours under +time=all, and the first class alone."""
    pictures, clock = Pictures(300), SlowCores(monkeypatch)
    tokenizer, honest = load_tokenizer(weights / "tokenizer"), tokens.encode

    def slow(*given: object) -> torch.Tensor:
        clock.now += 10
        return honest(*given)

    def encoded(**time: object) -> TableSplit:
        return TokenTable(pictures, tokenizer, str(tmp_path), **time).split("train")

    monkeypatch.setattr(tokens, "encode", slow)
    limit = {"max_time": "00:00:10:00", "share": 0.1}
    part = encoded(**limit)
    assert (len(part), clock.now) == (6 * 32, 60)
    (batches := TrainingData(TokenTable(pictures, tokenizer, str(tmp_path), **limit), 16, 0)).train_dataloader()
    assert batches.told_of_part == " on 192 of 300 images"  # which the end of a training says
    assert part.captions[:5] != [f"picture {i}" for i in range(5)]
    again = encoded(**limit | {"max_time": "00:10:00:00"})
    assert (len(again), clock.now, again.fingerprint) == (6 * 32, 60, part.fingerprint)
    (batches := TrainingData(TokenTable(pictures, tokenizer, str(tmp_path)), 16, 0)).train_dataloader()
    assert batches.told_of_part == ""
    few = encoded(most=40)  # of a trial
    assert few.captions == [f"picture {i}" for i in range(40)]
    whole = encoded()
    assert (len(whole), len({whole.fingerprint, few.fingerprint, part.fingerprint})) == (300, 3)
    assert whole.captions[:5] == [f"picture {i}" for i in range(5)]
    assert torch.equal(part[0]["tokens"], whole[whole.captions.index(part.captions[0])]["tokens"])
