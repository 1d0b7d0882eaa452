"""Writes drafters for other programs: one function per layout, chosen by `format=` of export.py."""

from pathlib import Path

from lantern.drafters.eagle.kv_state import FeatureTarget
from lantern.drafters.eagle.released import is_released, to_released
from lantern.drafters.loading import drafter_folder, is_parallel, load_network, network_of, read_drafter
from lantern.errors import CheckpointError, LanternError
from lantern.models.checkpoints import (
    FILE_SUFFIXES,
    TORCH_FILE,
    WEIGHTS_FILE,
    load_weights,
    save_weights,
)
from lantern.types import Target


def write_ours(checkpoint: str, target: Target, folder: str) -> Path:
    """model.safetensors and config.json in our names: what evaluate.py and train.py read, from either layout."""
    _check_place(Path(folder), WEIGHTS_FILE)
    found = _eagle_folder(checkpoint, target)
    load_network(found, target)  # raises for what does not fit
    return save_weights(folder, *read_drafter(found))


def write_released(checkpoint: str, target: FeatureTarget, folder: str) -> Path:
    """pytorch_model.bin and config.json as LANTERN's released drafters for LlamaGen have them, the embedding
    included."""
    _check_place(Path(folder), TORCH_FILE)
    found = _eagle_folder(checkpoint, target)
    network, (state, config) = load_network(found, target), read_drafter(found)
    if layers := network.reads.layers:
        raise LanternError(
            f"{checkpoint} reads the inputs of layers {list(layers)}, for which the released layout has no names; give "
            "format=ours, or a drafter of a recipe without layers"
        )
    embedding = network.embedding(target.embed_weight)
    released = to_released(state, config, embedding, target.num_tokens, target.prefix_len)
    return save_weights(folder, *released, file=TORCH_FILE)


def _eagle_folder(checkpoint: str, target: Target) -> Path:
    """The folder of the drafter's files."""
    found = drafter_folder(checkpoint, target)
    if is_parallel(*read_drafter(found)):
        raise CheckpointError(f"{checkpoint} is a parallel drafter; export.py writes EAGLE drafters only")
    return found


def _check_place(folder: Path, file: str) -> None:
    found = {path.name for path in folder.glob("*") if path.suffix in FILE_SUFFIXES}
    if not found:
        return
    try:
        network_of(*read_drafter(folder), folder)
        may_replace = found == {file} and is_released(load_weights(folder)[0]) == (file == TORCH_FILE)
    except CheckpointError:
        may_replace = False
    if not may_replace:
        raise LanternError(
            f"to={folder} holds {', '.join(sorted(found))}, which is no drafter of this format; give another folder"
        )
