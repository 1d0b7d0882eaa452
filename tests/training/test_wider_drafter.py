"""A drafter with a wider feed-forward part than its target's layers have, from nothing and from a narrower drafter."""

import pytest
import torch
from support.configs import composed
from support.recipes import shipped
from support.tiny_tasks import MemorySplits, drafter_task, fit

from lantern.drafters.loading import load_eagle
from lantern.errors import LanternError
from lantern.models.checkpoints import load_weights
from lantern.sampling import Sampling
from lantern.training.drafter.drafter_task import DrafterTask
from lantern.training.drafter.variants import EagleStudent
from lantern.trees.static import chain


def task_of(target, width_factor: int = 1, **others: object) -> DrafterTask:
    return drafter_task(target, recipe=shipped("lk"), student=EagleStudent(width_factor), **others)


@torch.no_grad()
def predicted(task: DrafterTask) -> torch.Tensor:
    batch = torch.utils.data.default_collate(list(MemorySplits().split("train"))[:2])
    return torch.stack(list(task._passes(task._pairs(batch), 2)))


def test_a_widened_drafter_goes_on_from_where_it_was(target, tmp_path):
    """Catches units that change the drafter before they are trained, that no gradient reaches, that are lost when the
    drafter is saved, loaded to decode or trained further."""
    narrow = task_of(target)
    fit(narrow, tmp_path, max_steps=3)
    narrow.export(tmp_path / "narrow")
    wide, width = task_of(target, 3, start_from=str(tmp_path / "narrow")), narrow.network.feed_forward.w1.out_features
    torch.testing.assert_close(predicted(wide), predicted(narrow), rtol=0, atol=1e-5)
    fit(wide, tmp_path, max_steps=3)
    assert wide.network.feed_forward.w2.weight[:, width:].any()
    wide.export(tmp_path / "wide")
    assert load_weights(tmp_path / "wide")[1]["hidden_dim"] == 3 * width
    again = task_of(target, start_from=str(tmp_path / "wide"))
    assert torch.equal(predicted(again), predicted(wide))
    drafter = load_eagle(tmp_path / "wide", target, chain(3), Sampling())
    assert torch.equal(drafter.network.feed_forward.w2.weight, wide.network.feed_forward.w2.weight)


def test_a_wide_drafter_from_nothing_starts_as_a_narrow_one(target):
    """Catches another initialisation than the target's layer."""
    narrow, wide = (task_of(target, factor).network.feed_forward for factor in (1, 2))
    width = narrow.w1.out_features
    assert wide.w1.out_features == 2 * width
    assert torch.equal(wide.w1.weight[:width], narrow.w1.weight)
    assert not wide.w2.weight.any()


def test_the_width_is_a_setting():
    assert composed("train", "distil.student.width_factor=3").task.student.width_factor == 3
    for given in (0, 1.5, "wide"):
        with pytest.raises(LanternError, match=rf"distil.student.width_factor={given!r}; give a whole number, 1 at"):
            EagleStudent(given)
