"""Drafter weights folders to a ready drafter; a drafter is tied to the target whose features it was distilled on."""

from pathlib import Path

from lantern.drafters.eagle import Eagle
from lantern.drafters.eagle_network import EagleNetwork
from lantern.errors import CheckpointError
from lantern.models.checkpoints import load_strictly, load_weights, weights_hash
from lantern.sampling import Sampling
from lantern.types import Target


def load_eagle(checkpoint: str | Path, target: Target, tree, sampling: Sampling) -> Eagle:
    """checkpoint: a folder written by train.py. Raises CheckpointError unless it was made for this very target."""
    state, config = load_weights(checkpoint)
    wanted = {"dim": target.embed_weight.shape[1], "vocab_size": target.vocab_size, "target_hash": target.weights_hash}
    for key, value in wanted.items():
        if config.get(key) != value:
            raise CheckpointError(
                f"the drafter in {checkpoint} is for a target with {key}={config.get(key)}, this one has {value}; "
                "give drafter.checkpoint=<a drafter of this target>, or distil one with: python train.py"
            )
    if missing := {"num_heads", "hidden_dim"} - config.keys():
        raise CheckpointError(
            f"{checkpoint}/config.json lacks {', '.join(sorted(missing))}; distil it with: python train.py"
        )
    network = EagleNetwork(config["dim"], config["num_heads"], config["hidden_dim"])
    load_strictly(network, state, checkpoint, "distil it again with: python train.py")
    weight = target.embed_weight
    return Eagle(network.to(weight.device, weight.dtype), target, tree, sampling, weights_hash(checkpoint))
