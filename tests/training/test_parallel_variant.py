"""The parallel drafter in training: its passes against chains run one by one, and against decoding."""

from dataclasses import replace

import pytest
import torch
from support.recipes import feature_lk, shipped
from support.tiny_tasks import drafter_task

from lantern.drafters.export import write_drafter
from lantern.drafters.loading import load_eagle, load_parallel
from lantern.errors import CheckpointError, LanternError
from lantern.models.checkpoints import weights_hash
from lantern.sampling import Sampling
from lantern.training.drafter.drafter_task import DrafterTask
from lantern.training.drafter.recipe import Recipe
from lantern.training.drafter.unroll import detached_unroll
from lantern.training.drafter.variants import EagleStudent, ParallelStudent
from lantern.trees.static import chain


def parallel_task(target, recipe: Recipe | None = None, **others: object) -> DrafterTask:
    return drafter_task(target, recipe=recipe or feature_lk(depth=3), student=ParallelStudent(levels=3), **others)


def test_an_exported_drafter_loads_as_what_it_is(target, tmp_path):
    """Catches weights saved without their levels, and a drafter loaded as another kind."""
    parallel_task(target).export(tmp_path / "parallel")
    drafter_task(target).export(tmp_path / "eagle")
    drafter = load_parallel(tmp_path / "parallel", target, chain(3), Sampling())
    assert len(drafter.network.entrances) == 3
    assert drafter.weights_hash == weights_hash(tmp_path / "parallel")
    with pytest.raises(CheckpointError, match=r"'levels', 'row', and 'first'.*train\.py drafter=parallel"):
        load_parallel(tmp_path / "eagle", target, chain(3), Sampling())
    with pytest.raises(CheckpointError, match=r"is a parallel drafter, .* use drafter=parallel"):
        load_eagle(tmp_path / "parallel", target, chain(3), Sampling())
    with pytest.raises(CheckpointError, match=r"is a parallel drafter, which is not converted"):
        write_drafter(str(tmp_path / "parallel"), target, str(tmp_path / "written"))


@pytest.mark.parametrize(("recipe", "num_layers"), [("feature_lk", 1), ("layered", 1), ("feature_lk", 3)])
def test_levels_start_from_an_eagle_drafters_layers(recipe, num_layers, target, tmp_path):
    """Catches an initialisation whose first level is not EAGLE's drafter, a map of layers silently dropped, and a
    further layer that is no identity."""
    eagle = drafter_task(target, recipe=shipped(recipe), student=EagleStudent(min(num_layers, 2)))
    for block in eagle.network.deeper:
        torch.nn.init.normal_(block.attention.wo.weight)  # at the start it is zero
    eagle.export(tmp_path / "eagle")
    network = ParallelStudent(levels=3, num_layers=num_layers).load(str(tmp_path / "eagle"), target)
    assert network.num_layers == num_layers
    x, features = torch.randn(2, 2, 5, target.embed_weight.shape[1], generator=torch.Generator().manual_seed(0))
    rotation = target.rotation[None, :5]
    assert all(map(torch.equal, network.reads.parameters(), eagle.network.reads.parameters()))
    assert network.reads.layers == eagle.network.reads.layers
    for level in range(3):
        torch.testing.assert_close(
            network(x, features, rotation, None, level=level), eagle.network(x, features, rotation, None)
        )
    parallel_task(target).export(tmp_path / "parallel")
    assert len(ParallelStudent(levels=3).load(str(tmp_path / "parallel"), target).entrances) == 3
    with pytest.raises(LanternError, match=r"has 3 levels; give distil\.student\.levels=3"):
        ParallelStudent(levels=9).load(str(tmp_path / "parallel"), target)


@pytest.mark.parametrize(("given", "said"), [
    ({"recipe": feature_lk(depth=2)}, r"this recipe has 2 passes, .* recipe\.depth=3"),
    ({"recipe": replace(feature_lk(depth=3), unroll=detached_unroll)}, r"3 passes, of EAGLE or"),
    ({"validation_depth": 4}, r"distil\.validation_depth=4: .* 3 levels; .* distil\.student\.levels=4"),
])  # fmt: skip
def test_what_a_parallel_drafter_cannot_do_is_refused(given, said, target):
    """Catches levels that no pass trains, EAGLE's unroll on a network that reads no features of its own, and an
    IndexError at the first validation."""
    with pytest.raises(LanternError, match=said):
        parallel_task(target, **given)
