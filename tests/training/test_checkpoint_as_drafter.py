"""A checkpoint of a training as a drafter: to decode with, to export and to train further, without its run's folder."""

import pickle
from pathlib import Path

import pytest
import torch
from pytorch_lightning.callbacks import EMAWeightAveraging
from safetensors.torch import load_file
from support.recipes import shipped
from support.tiny_tasks import drafter_task, fit_saving, target_task

from lantern.drafters.export import write_drafter
from lantern.drafters.loading import load_eagle
from lantern.errors import CheckpointError
from lantern.models.checkpoints import load_weights
from lantern.sampling import Sampling
from lantern.training.drafter.variants import loaded_network
from lantern.trees.static import chain


def trained(target, folder: Path, *callbacks, **others) -> tuple[Path, Path]:
    """The last checkpoint of a training, moved out of its run, and what the training exports."""
    task = drafter_task(target, **others)
    fit_saving(task, folder / "checkpoints", *callbacks)
    task.export(folder / "drafter")
    moved = folder / "moved" / "last.ckpt"
    moved.parent.mkdir()
    return (folder / "checkpoints" / "latest.ckpt").rename(moved), folder / "drafter"


@pytest.mark.parametrize(("recipe", "num_layers"), [("feature_lk", 1), ("eagle3", 1), ("layered", 2)])
def test_a_checkpoint_is_the_drafter_that_its_training_exports(target, tmp_path, recipe, num_layers):
    """Catches another step's weights, and layers that are forgotten or that nothing has trained."""
    given = {"recipe": shipped(recipe, "recipe.depth=2"), "num_layers": num_layers}
    checkpoint, exported = trained(target, tmp_path, **given)
    write_drafter(str(checkpoint), target, str(tmp_path / "copy"))
    assert load_weights(tmp_path / "copy")[1] == load_weights(exported)[1]
    copy, own = (load_file(folder / "model.safetensors") for folder in (tmp_path / "copy", exported))
    assert copy.keys() == own.keys()
    assert all(torch.equal(copy[name], own[name]) for name in own)
    of_file, of_folder = (load_eagle(place, target, chain(3), Sampling()) for place in (checkpoint, exported))
    assert all(map(torch.equal, of_file.network.parameters(), of_folder.network.parameters()))
    assert of_file.weights_hash
    assert of_file.network.num_layers == num_layers
    assert all(block.attention.wo.weight.any() for block in of_file.network.deeper)
    further = drafter_task(target, start_from=str(checkpoint), **given)
    assert torch.equal(further.network.fc.weight, of_folder.network.fc.weight)


def test_further_layers_change_nothing_at_first(target, tmp_path):
    """Catches a layer that is no identity, and one that is added behind too many."""
    _, exported = trained(target, tmp_path, num_layers=2)
    own, same, deeper = (loaded_network(str(exported), target, count) for count in (2, 1, 4))
    assert [network.num_layers for network in (own, same, deeper)] == [2, 2, 4]
    x, features = torch.randn(2, 2, 5, target.embed_weight.shape[1], generator=torch.Generator().manual_seed(0))
    read = x, features, target.rotation[None, :5], None
    torch.testing.assert_close(deeper(*read), own(*read))


def test_averaged_weights_are_the_ones_that_are_read(target, tmp_path):
    """Catches the last step's weights, which Lightning keeps beside the averaged ones."""
    checkpoint, exported = trained(target, tmp_path, EMAWeightAveraging(decay=0.5))
    kept = torch.load(checkpoint, weights_only=True)
    own = load_file(exported / "model.safetensors")["fc.weight"]
    assert torch.equal(load_eagle(checkpoint, target, chain(3), Sampling()).network.fc.weight, own)
    assert not torch.equal(kept["current_model_state"]["network.fc.weight"], own)


def test_a_checkpoint_of_another_task_or_program_is_refused_by_its_name(target, weights, tmp_path):
    """Catches a traceback, weights that are taken for a drafter's, and code that is run."""
    fit_saving(target_task(weights), tmp_path)
    other = tmp_path / "other.ckpt"
    for content in ({"state_dict": {"network.fc.weight": torch.ones(2)}, "hyper_parameters": {"lr": 1}}, [1]):
        torch.save(content, other)
        with pytest.raises(CheckpointError, match=r"other\.ckpt is no checkpoint of a drafter"):
            load_eagle(other, target, chain(3), Sampling())
    with pytest.raises(CheckpointError, match=r"latest\.ckpt is no checkpoint of a drafter"):
        write_drafter(str(tmp_path / "latest.ckpt"), target, str(tmp_path / "copy"))
    torch.save({"state_dict": {}, "drafter": chain}, other)
    with pytest.raises(CheckpointError, match=r"holds no readable weights; code in it is never executed; "):
        load_eagle(other, target, chain(3), Sampling())
    other.write_bytes(pickle.dumps({})[:-2])
    with pytest.raises(CheckpointError, match=r"other\.ckpt"):
        load_eagle(other, target, chain(3), Sampling())
