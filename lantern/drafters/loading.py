"""Loads drafters, ours or of the released LANTERN layout, from a folder, the Hub or Weights & Biases, and ours from a
checkpoint of their training. Ours carry the hash of the target whose features they were distilled on; released ones
name no target, so that only sizes can be checked."""

import logging
from collections.abc import Hashable
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from torch import Tensor, nn

from lantern.drafters.eagle.eagle import Eagle
from lantern.drafters.eagle.feature_drafter import FeatureTarget
from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.eagle.released import from_released, is_released
from lantern.errors import CheckpointError, explaining
from lantern.models import checkpoints
from lantern.models.checkpoints import CONFIG_FILE, FOLDER_FILES, RANDOM, randomly_initialised, weights_hash
from lantern.models.hub import find_folder
from lantern.models.llamagen.transformer import feed_forward_dim
from lantern.runtime.files import is_file
from lantern.sampling import Sampling
from lantern.types import Target, TreePolicy

DRAFTER_FILES = (CONFIG_FILE, *FOLDER_FILES)
COMMAND = "python train.py"
CHECKPOINT = "drafter.checkpoint"
OF_A_WINDOW = "num_blocks"  # a key in the config.json of a window's network, not of EAGLE's layer
ARTIFACT = "wandb:"  # prefix of an artifact's name
TRAINING_SUFFIX = ".ckpt"  # of the checkpoints that a training goes on from
NETWORK, DESCRIPTION = "network.", "drafter"  # in such checkpoints: prefix of the drafter's weights, key of its config

log = logging.getLogger(__name__)
Network = TypeVar("Network", bound=nn.Module)
_in_use: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()  # networks of drafters, by what loaded them


def load_eagle(checkpoint: str | Path, target: FeatureTarget, tree: TreePolicy, sampling: Sampling) -> Eagle:
    """checkpoint: a folder written by train.py, a released one, a Hub id, or "random"."""
    network, name = eagle_layer(checkpoint, target)
    return Eagle(network, target, tree, sampling, name)


def eagle_layer(checkpoint: str | Path, target: FeatureTarget) -> tuple[EagleNetwork, str]:
    """The network, on the target's device, and the hash of its weights. checkpoint "random": an untrained network of
    the target's width, to time decoding without drafter files."""
    weight = target.embed_weight
    if checkpoint == RANDOM:
        dim, head_dim = weight.shape[1], target.rotation.shape[-1]  # positions are the target's, and so heads' widths
        network = randomly_initialised(lambda: EagleNetwork(dim, dim // head_dim, feed_forward_dim(dim, 256)))
        return network.to(weight.device, weight.dtype), RANDOM
    return load_shared(checkpoint, target, EagleNetwork)


def load_shared(checkpoint: str | Path, target: Target, kind: type[Network]) -> tuple[Network, str]:
    """The network on the target's device, or the one already loaded if a drafter uses it: drafters only read it, and
    tree=auto makes a dozen drafters of one network. And the hash of its weights."""
    folder, weight = drafter_folder(checkpoint, command=command_of(kind)), target.embed_weight
    name = weights_hash(folder)
    key = kind, folder, name, target.weights_hash, weight.shape, weight.dtype, weight.device
    if (network := _in_use.get(key)) is None:
        network = _in_use[key] = load_network(folder, target, kind=kind).to(weight.device, weight.dtype)
        checkpoints.check_finite(network.state_dict(), folder)  # also in a narrower dtype
    return network, name


def command_of(kind: type) -> str:
    """What trains a network of this kind."""
    return getattr(kind, "command", COMMAND)


def drafter_folder(checkpoint: str | Path, setting: str = CHECKPOINT, command: str = COMMAND) -> Path:
    """The folder of a drafter's files, or a checkpoint of its training. checkpoint: one of these, a Hub id, or
    wandb:<artifact>; command: trains such a drafter."""
    if str(checkpoint).startswith(ARTIFACT):
        import wandb

        remedy = "give wandb:entity/project/name:version, or its folder"
        with explaining(f"{setting}={checkpoint} cannot be fetched", remedy):
            return Path(wandb.Api().artifact(str(checkpoint).removeprefix(ARTIFACT)).download())
    if is_training(path := Path(checkpoint).expanduser()):
        return path
    if is_drafter(exported := path / "drafter") and not is_drafter(path):
        raise CheckpointError(f"{setting}={checkpoint} is the run folder of a training; give {setting}={exported}")
    try:
        return find_folder(checkpoint, setting, DRAFTER_FILES, is_drafter)
    except CheckpointError as error:
        raise CheckpointError(f"{error}, or distil a drafter with: {command}") from error


def is_drafter(folder: Path) -> bool:
    """Whether the folder holds a drafter's config and weights."""
    return (folder / CONFIG_FILE).is_file() and checkpoints.weights_file(folder).is_file()


def is_training(path: Path) -> bool:
    """Whether this is a checkpoint that Lightning wrote, by its name."""
    return path.suffix == TRAINING_SUFFIX and is_file(path)


def read_training(path: Path) -> tuple[dict[str, Tensor], dict]:
    """State dict and config of the drafter in a checkpoint of its training: what this training exports if it ends
    there, averaged weights where a callback averages them."""
    content = checkpoints.read_file(path)
    state, config = (content.get(key) if isinstance(content, dict) else None for key in ("state_dict", DESCRIPTION))
    if not isinstance(state, dict) or not isinstance(config, dict):
        raise CheckpointError(
            f"{path} is no checkpoint of a drafter that this version's train.py wrote; give a .ckpt of its checkpoints "
            "folder, or the folder of a drafter"
        )
    return {name.removeprefix(NETWORK): value for name, value in state.items() if name.startswith(NETWORK)}, config


def load_network(checkpoint: str | Path, target: Target, setting: str = CHECKPOINT, kind: type = EagleNetwork) -> Any:
    """The drafter's network alone, to decode with or to train further, if it is one for this target. setting: the
    config key of `checkpoint`."""
    state, config = read_drafter(checkpoint)
    remedy = f"give {setting}=<a drafter of this target>, or distil one with: {command_of(kind)}"
    if (OF_A_WINDOW in config) != (kind is not EagleNetwork):
        method = "corrected_jacobi" if OF_A_WINDOW in config else "refined_jacobi"
        raise CheckpointError(f"{checkpoint} is a drafter of another kind, that of +method={method}; {remedy}")
    _check(state, config, checkpoint, target, remedy)
    sizes = {name: config[name] for name in signature(kind).parameters if name in config}
    return checkpoints.load_described(kind, sizes, state, checkpoint, f"distil it again with: {command_of(kind)}")


def _check(state: dict[str, Tensor], config: dict, checkpoint: str | Path, target: Target, remedy: str) -> None:
    wanted: dict[str, object] = {"dim": target.embed_weight.shape[1]}
    if "target_hash" not in config:  # of the same weights a call may draw other ids, which are embeddings to the layer
        wanted["vocab_size"] = target.vocab_size
    if not (is_nameless := "target_hash" not in config and "embed_weight" in state):
        wanted["target_hash"] = target.weights_hash
    for key, value in wanted.items():
        if (found := config.get(key)) != value:
            raise CheckpointError(f"{checkpoint} is for a target with {key}={found}, this one has {value}; {remedy}")
    if is_nameless:
        log.info("%s names no target: its sizes fit this one, more cannot be checked", checkpoint)


def read_drafter(checkpoint: str | Path) -> tuple[dict[str, Tensor], dict]:
    """State dict and config in our names, from either layout or a checkpoint of a training."""
    if is_training(path := Path(checkpoint)):
        return read_training(path)
    state, config = checkpoints.load_weights(checkpoint)
    if not is_released(state):
        return state, config
    with explaining(f"{checkpoint}/{CONFIG_FILE} describes no drafter", "copy the drafter's own config.json"):
        return from_released(state, config)
