"""The picks of plain decoding along given tokens, whatever method made these."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lantern.noise import Noise, gumbel_argmax
from lantern.sampling import Sampling
from lantern.types import Target, TreeTopology, Verdict


@torch.inference_mode()
def plain_picks(
    target: Target, sampling: Sampling, prompts: Sequence[str], seeds: Sequence[int], tokens: Tensor
) -> Tensor:
    """tokens [B, L] -> plain decoding's pick [B, L] at each position, given the tokens before it and the same noise. A
    pass a position, in which the given token is committed instead of the pick."""
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
