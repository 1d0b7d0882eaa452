"""Drafter weights folders to a ready drafter; a drafter is tied to the target whose features it was distilled on."""

from pathlib import Path

from torch import Tensor

from lantern.drafters.eagle import Eagle
from lantern.drafters.eagle_network import EagleNetwork
from lantern.drafters.parallel import Parallel
from lantern.drafters.parallel_network import ParallelNetwork
from lantern.errors import CheckpointError
from lantern.models.checkpoints import load_strictly, load_weights, weights_hash
from lantern.sampling import Sampling
from lantern.types import Target, TreePolicy

EAGLE, PARALLEL = "python train.py", "python train.py drafter=parallel"


def load_eagle(checkpoint: str | Path, target: Target, tree: TreePolicy, sampling: Sampling) -> Eagle:
    """checkpoint: a folder written by train.py. Raises CheckpointError unless it was made for this very target."""
    state, config = _read(checkpoint, target, {"num_heads", "hidden_dim"}, EAGLE)
    network = EagleNetwork(config["dim"], config["num_heads"], config["hidden_dim"])
    load_strictly(network, state, checkpoint, f"distil it again with: {EAGLE}")
    weight = target.embed_weight
    return Eagle(network.to(weight.device, weight.dtype), target, tree, sampling, weights_hash(checkpoint))


def load_parallel(checkpoint: str | Path, target: Target, tree: TreePolicy, sampling: Sampling) -> Parallel:
    """As load_eagle, for drafters of train.py drafter=parallel."""
    state, config = _read(checkpoint, target, {"num_heads", "hidden_dim", "levels"}, PARALLEL)
    network = ParallelNetwork(config["dim"], config["num_heads"], config["hidden_dim"], config["levels"])
    load_strictly(network, state, checkpoint, f"distil it again with: {PARALLEL}")
    weight = target.embed_weight
    return Parallel(network.to(weight.device, weight.dtype), target, tree, sampling, weights_hash(checkpoint))


def _read(checkpoint: str | Path, target: Target, keys: set[str], command: str) -> tuple[dict[str, Tensor], dict]:
    """The state dict, and a config that has these keys and fits the target."""
    state, config = load_weights(checkpoint)
    wanted = {"dim": target.embed_weight.shape[1], "vocab_size": target.vocab_size, "target_hash": target.weights_hash}
    for key, value in wanted.items():
        if config.get(key) != value:
            raise CheckpointError(
                f"the drafter in {checkpoint} is for a target with {key}={config.get(key)}, this one has {value}; "
                f"give drafter.checkpoint=<a drafter of this target>, or distil one with: {command}"
            )
    if missing := keys - config.keys():
        raise CheckpointError(f"{checkpoint}/config.json lacks {', '.join(sorted(missing))}; distil it with: {command}")
    return state, config
