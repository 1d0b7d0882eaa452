"""What all drafters have in common that read pairs of a target feature and the token behind it."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lantern.drafters.eagle.kv_state import DrafterState, FeatureTarget, LayeredTarget
from lantern.drafters.eagle.network import EagleNetwork, ParallelNetwork
from lantern.errors import LanternError
from lantern.sampling import Sampling
from lantern.types import DraftTree, Forward, Target, TreeLabel, TreePolicy, Verdict


class FeatureDrafter:
    """Implements lantern.types.Drafter but for draft()."""

    num_nodes: int

    def __init__(
        self, network: EagleNetwork | ParallelNetwork, read: Callable[..., Tensor], target: FeatureTarget,
        tree: TreePolicy | TreeLabel, sampling: Sampling, weights_hash: str, max_pairs: int, ahead: int,
    ) -> None:  # fmt: skip
        """read: runs committed pairs, as FusedEagle's call; max_pairs: that a round can commit; ahead: tokens that a
        draft runs behind them. Raises LanternError for a target without features to share."""
        require_features(target)
        if network.reads.layers:
            require_layers(target, network.reads.layers)
        self.network, self.target, self.tree = network.eval().requires_grad_(False), target, tree
        self.sampling, self.weights_hash, self._encode_pairs = sampling, weights_hash, read
        self.forwards, self.forward_s = 0, 0.0
        self.state = DrafterState(network, target, tree, max_pairs, ahead)

    def allocate(self, batch_size: int) -> None:
        """An empty cache and no pending pairs for batch_size rows."""
        if isinstance(self.target, LayeredTarget):
            self.target.hand_out(self.network.reads.layers)
        self.state.allocate(batch_size)
        self.cache, self.pairs = self.state.cache, self.state.pairs

    @torch.inference_mode()
    def begin(self, prefill: Forward, rows: Tensor) -> None:
        """Runs the prefix pairs of admitted rows. As the target's prefill, that counts as no forward."""
        self.state.begin(prefill, rows, self._encode_pairs)

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        """Keeps the pairs (feature of an accepted node, the token behind it) for the next draft."""
        self.state.observe(tree, forward.features, verdict, self.network.reads)

    def keep(self, rows: Tensor) -> None:
        self.state.keep(rows)


def require_features(target: Target) -> None:
    """Raises LanternError for a target whose features and positions a drafter cannot share."""
    if not isinstance(target, FeatureTarget):
        raise LanternError(
            f"{type(target).__name__} shares no positions with a drafter of EAGLE's kind; use drafter=jacobi or none"
        )


def layered(target: Target) -> LayeredTarget:
    """The target, known to hand out the inputs of its layers; else LanternError."""
    if not isinstance(target, LayeredTarget):
        raise LanternError(
            f"{type(target).__name__} hands out no inputs of its layers, which drafters of recipe=eagle3 read; use a "
            "model of conf/model, or a drafter of another recipe"
        )
    return target


def require_layers(target: Target, layers: Sequence[int]) -> None:
    """Raises LanternError for a target that does not hand out the inputs of these layers."""
    if max(layers) >= (count := layered(target).num_layers):
        raise LanternError(
            f"this drafter reads the inputs of the target's layers {list(layers)}, which has {count}; use a drafter of "
            "this target"
        )


def require_codes(tree: TreePolicy, target: Target) -> None:
    """Raises LanternError for a node with more children than there are codes."""
    if tree.width > target.vocab_size:
        raise LanternError(
            f"a node of tree {tree.name} has {tree.width} children, more than the {target.vocab_size} codes"
        )
