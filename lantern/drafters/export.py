"""Writes drafters for other programs: one function per layout, chosen by `format=` of export.py."""

from pathlib import Path

from lantern.drafters.eagle.kv_state import FeatureTarget
from lantern.drafters.eagle.released import to_released
from lantern.drafters.loading import drafter_folder, is_parallel, load_network, read_drafter
from lantern.errors import CheckpointError, LanternError
from lantern.models.checkpoints import save_torch_weights, save_weights
from lantern.types import Target


def write_lantern(checkpoint: str, target: Target, folder: str) -> Path:
    """model.safetensors and config.json in our names: what evaluate.py and train.py read, from either layout."""
    found = _eagle_folder(checkpoint, target)
    load_network(found, target)  # raises for what does not fit
    return save_weights(folder, *read_drafter(found))


def write_released(checkpoint: str, target: FeatureTarget, folder: str) -> Path:
    """pytorch_model.bin and config.json as LANTERN's released drafters for LlamaGen have them, the embedding included.

    Raises LanternError for other targets and for drafters that read inputs of layers.
    """
    found = _eagle_folder(checkpoint, target)
    network, (state, config) = load_network(found, target), read_drafter(found)
    if layers := network.reads.layers:
        raise LanternError(
            f"{checkpoint} reads the inputs of layers {list(layers)}, for which the released layout has no names; give "
            "format=lantern, or a drafter of a recipe without layers"
        )
    embedding = network.embedding(target.embed_weight)
    return save_torch_weights(folder, *to_released(state, config, embedding, target.num_tokens, target.prefix_len))


def _eagle_folder(checkpoint: str, target: Target) -> Path:
    """The folder of the drafter's files. CheckpointError for a parallel drafter, which no layout here is for."""
    found = drafter_folder(checkpoint, target)
    if is_parallel(*read_drafter(found)):
        raise CheckpointError(f"{checkpoint} is a parallel drafter; export.py writes EAGLE drafters only")
    return found
