from itertools import chain

import pytest
from support.tiny_tasks import MemorySplits

from lantern.errors import LanternError
from lantern.training.data_module import ResumableLoader, SeededBatches, TrainingData


def batches_of(loader: SeededBatches, epochs: int) -> list[list[int]]:
    return [batch for _ in range(epochs) for batch in loader]


def test_each_epoch_shows_every_item_once_in_a_new_order():
    batches = batches_of(SeededBatches(12, 4, 0), 2)
    epochs = [[*chain(*batches[:3])], [*chain(*batches[3:])]]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(12))
    assert epochs[0] != epochs[1]


def test_a_loader_goes_on_where_its_state_was_taken():
    whole = batches_of(SeededBatches(12, 4, 7), 3)
    for consumed in range(1, 6):
        first = ResumableLoader([], SeededBatches(12, 4, 7))
        seen = []
        while len(seen) < consumed:
            for batch in first.batches:
                seen.append(batch)
                if len(seen) == consumed:
                    break
        second = ResumableLoader([], SeededBatches(12, 4, 7))
        second.load_state_dict(first.state_dict())
        rest = batches_of(second.batches, 3)
        assert (seen + rest)[: len(whole)] == whole


def test_ranks_share_an_epoch_without_overlap():
    batches = chain(*(SeededBatches(12, 6, 0, rank, 3) for rank in range(3)))
    assert sorted(chain(*batches)) == list(range(12))


def test_too_little_data_is_one_clear_sentence():
    with pytest.raises(LanternError, match="3 training items do not fill a batch of 4"):
        SeededBatches(3, 4, 0)


def test_batches_hold_tokens_and_captions():
    data = TrainingData(MemorySplits(), batch_size=4, seed=0)
    batch = next(iter(data.train_dataloader()))
    assert batch["tokens"].shape == (4, 16)
    assert len(batch["caption"]) == 4
