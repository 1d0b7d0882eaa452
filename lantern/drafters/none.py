"""Plain autoregressive decoding, no paper's: a tree of the root alone, through the same loop and the same timers."""

from torch import Tensor

from lantern.types import DraftTree, Forward, Proposals, TreeLabel, TreePolicy, TreeTopology, Verdict


class NoDrafter:
    """Implements lantern.types.Drafter; drafts nothing."""

    name = "none"
    weights_hash: str | None = None
    tree: TreePolicy | TreeLabel = TreeLabel("none", "none")
    num_nodes = 1
    depth = 0
    forwards, forward_s = 0, 0.0

    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        return TreeTopology.chain(0, roots.device).tree(roots[:, None])

    def allocate(self, batch_size: int) -> None: ...
    def begin(self, prefill: Forward, rows: Tensor) -> None: ...
    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None: ...
    def keep(self, rows: Tensor) -> None: ...
