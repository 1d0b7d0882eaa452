"""The frozen target's features under teacher forcing: what its decoding passes would return, all rows at once."""

import torch
from einops import rearrange, repeat
from torch import Tensor

from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import causal_mask


@torch.no_grad()
def target_features(target: LlamaGenTarget, tokens: Tensor, captions: list[str]) -> Tensor:
    """Teacher forcing over prefix and image: tokens [B, L] -> features [B, R, P + L - 1, D] after the final norm."""
    body, guidance = target.transformer, target.guidance
    condition, visible = (part.to(tokens.device) for part in target.conditioner(captions))
    condition = condition.to(target.embed_weight.dtype) if condition.is_floating_point() else condition
    dropped = torch.arange(guidance, device=tokens.device).bool().repeat(len(tokens))
    prefix = body.cls_embedding(condition.repeat_interleave(guidance, 0), dropped)
    x = torch.cat([prefix, repeat(target.embed(tokens[:, :-1]), "b t d -> (b r) t d", r=guidance)], dim=1)
    mask = causal_mask(visible.repeat_interleave(guidance, 0), x.shape[1])
    features = body.body(x, target.rotation[None, : x.shape[1]], mask)
    return rearrange(features, "(b r) t d -> b r t d", r=guidance)
