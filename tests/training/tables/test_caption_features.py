"""Caption features read from disk equal freshly encoded ones."""

from collections.abc import Sequence

import pytest
import torch
from support.tiny_tasks import MemorySplits
from torch import Tensor

from lantern.errors import LanternError
from lantern.identity import target_hashes
from lantern.models.llamagen.target import Conditioner
from lantern.training.tables.features import CaptionTable, StoredCaptions
from lantern.types import AnyText


class RoundedByBatch(AnyText):
    """As T5: pads are -0, and what a caption's features round to depends on those encoded beside it."""

    weights_hash = "of this encoder"

    def __init__(self, encoder: Conditioner) -> None:
        self.encoder = encoder

    def __call__(self, captions: Sequence[str]) -> tuple[Tensor, Tensor]:
        features, visible = self.encoder(captions)
        return (features - 1e-6 * len(captions)) * visible[..., None], visible


def test_stored_captions_are_the_encoders_and_others_still_work(target, tmp_path):
    """Catches features on the wrong side of the pads, mixed-up captions, and a stale table of another encoder."""
    encoder = target.conditioner
    items = CaptionTable(MemorySplits(4), target, str(tmp_path), budget_gib=1).split("train")
    assert items.captions == MemorySplits(4).captions
    assert isinstance(target.conditioner, StoredCaptions)
    prompts = ["wood", "a blue ring", "a red ring on wood"]  # the second is in no table
    for stored, fresh in zip(target.conditioner(prompts), encoder(prompts), strict=True):
        assert torch.equal(stored, fresh)
    target.conditioner = lambda captions: tuple(part * 2 for part in encoder(captions))
    CaptionTable(MemorySplits(4), target, str(tmp_path), budget_gib=1).split("train")
    assert torch.equal(target.conditioner(["wood"])[0], 2 * encoder(["wood"])[0])


def test_an_encoder_that_overflows_is_an_error(target, tmp_path):
    encoder = target.conditioner
    target.conditioner = lambda captions: (encoder(captions)[0] * torch.inf, encoder(captions)[1])
    with pytest.raises(LanternError, match="no finite features"):
        CaptionTable(MemorySplits(4), target, str(tmp_path), budget_gib=1).split("train")


def test_tables_of_features_know_the_text_encoder_behind_stored_captions(target, tmp_path):
    """Catches one text encoder's feature table read for another's captions, and a table that is made again since stored
    captions differ in their last bits."""
    target.conditioner = RoundedByBatch(target.conditioner)
    before, read = target_hashes(target), target.reading_hash("wood")
    CaptionTable(MemorySplits(4), target, str(tmp_path), budget_gib=1).split("train")
    assert target.reading_hash("wood") == read
    assert target_hashes(target) == before == (target.weights_hash, "of this encoder")
