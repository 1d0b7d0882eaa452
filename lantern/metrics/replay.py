"""The target's laws along the tokens of finished images, by passes outside decoding."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lantern.noise import Noise, gumbel_argmax
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


@torch.inference_mode()
def plain_picks(
    target: Target, sampling: Sampling, prompts: Sequence[str], seeds: Sequence[int], tokens: Tensor
) -> Tensor:
    """tokens [B, L] -> plain decoding's pick [B, L] at each position, given the tokens before it and the same noise.
    One pass for each position, which commits the given token instead of the pick."""
    batch, length = tokens.shape
    device = target.codebook.device
    tokens, rows = tokens.to(device), torch.arange(batch, device=device)
    target.allocate(batch, 1)
    noise = Noise(batch, target.vocab_size, 0, device)
    noise.admit(rows, torch.tensor(list(seeds), device=device))
    logits, picks = target.prefill(list(prompts), rows).logits, []
    for position in range(length):
        law = sampling.law(logits[:, -1])
        picks.append(gumbel_argmax(law, noise.noise_of_chain(1)[:, 0]))
        if position + 1 < length:
            noise.advance([1] * batch, torch.ones_like(noise.position))
            root = TreeTopology.chain(0, device).tree(tokens[:, position, None])
            logits = target.verify(root).logits
            target.commit(Verdict(torch.zeros_like(root.tokens), torch.zeros_like(rows), tokens[:, position + 1]))
    return torch.stack(picks, 1)
