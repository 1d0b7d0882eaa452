"""Entropy of the target's law at every position of finished images, by a second pass over them outside decoding."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lantern.sampling import Sampling, entropy
from lantern.types import Target, TreeTopology, Verdict

NODES_AT_ONCE = 32  # a longer pass needs more memory for its logits


@torch.inference_mode()
def law_entropies(target: Target, sampling: Sampling, prompts: Sequence[str], tokens: Tensor) -> Tensor:
    """tokens [B, L] -> entropy in bits [B, L] of the law p of each position, given the tokens before it."""
    batch, length = tokens.shape
    tokens = tokens.to(target.codebook.device)
    target.allocate(batch, NODES_AT_ONCE)
    prefill = target.prefill(list(prompts), torch.arange(batch, device=tokens.device))
    nats = [entropy(sampling.law(prefill.logits))]
    for start in range(0, length - 1, NODES_AT_ONCE):
        chunk = tokens[:, start : min(start + NODES_AT_ONCE, length - 1)]  # the last token conditions nothing
        nodes = torch.arange(chunk.shape[1], device=tokens.device).repeat(batch, 1)
        forward = target.verify(TreeTopology.chain(chunk.shape[1] - 1, tokens.device).tree(chunk))
        nats.append(entropy(sampling.law(forward.logits)))
        target.commit(Verdict(nodes, nodes[:, -1], tokens[:, start + chunk.shape[1]]))
    return torch.cat(nats, 1) / math.log(2)
