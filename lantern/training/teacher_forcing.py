"""The frozen target's features under teacher forcing: those of its decoding passes, at all positions at once."""

from collections.abc import Sequence
from functools import singledispatch

import torch
from einops import rearrange, repeat
from torch import Tensor

from lantern.drafters.eagle.feature_drafter import layered
from lantern.models.hf.target import HuggingFaceTarget
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import causal_mask
from lantern.types import DraftTree, Target


def guided_target(target: Target, cfg_scale: float) -> Target:
    """The target under the guidance that decoding will use, for all parts of a training run to share."""
    return target.configured(cfg_scale)


def target_features(target: Target, tokens: Tensor, captions: list[str], layers: Sequence[int] = ()) -> Tensor:
    """tokens [B, L] behind captions -> features [B, R, P + L - 1, F] after the final norm, and behind them the inputs
    of `layers`: those of Forward.features, in the precision of decoding also under a training's autocast.

    LanternError for layers that the target does not hand out.
    """
    with torch.autocast(tokens.device.type, enabled=False):
        return features_as_is(target, tokens, captions, layers)


@singledispatch
def features_as_is(target: Target, tokens: Tensor, captions: list[str], layers: Sequence[int] = ()) -> Tensor:
    """target_features in the precision set around it. Of any target: one verification pass of the image as a chain."""
    batch, length = len(tokens), tokens.shape[1] - 1
    target.allocate(batch, length)
    if layers:
        layered(target).hand_out(layers)
    prefix = target.prefill(captions, torch.arange(batch, device=tokens.device)).features
    parents = torch.arange(-1, length - 1, device=tokens.device).expand(batch, -1)
    return torch.cat([prefix, target.verify(DraftTree(tokens[:, :-1], parents)).features], dim=2)


@features_as_is.register
@torch.no_grad()
def _(target: LlamaGenTarget, tokens: Tensor, captions: list[str], layers: Sequence[int]) -> Tensor:
    """Without the KV cache, and without the head, whose logits are not needed here."""
    body, guidance = target.transformer, target.guidance
    condition, visible = (part.to(tokens.device) for part in target.conditioner(captions))
    condition = condition.to(target.embed_weight.dtype) if condition.is_floating_point() else condition
    dropped = torch.arange(guidance, device=tokens.device).bool().repeat(len(tokens))
    prefix = body.cls_embedding(condition.repeat_interleave(guidance, 0), dropped)
    x = torch.cat([prefix, repeat(target.embed(tokens[:, :-1]), "b t d -> (b r) t d", r=guidance)], dim=1)
    mask = causal_mask(visible.repeat_interleave(guidance, 0), x.shape[1])
    features = body.body(x, target.rotation[None, : x.shape[1]], mask, layers)
    return rearrange(features, "(b r) t f -> b r t f", r=guidance)


@features_as_is.register
@torch.no_grad()
def _(target: HuggingFaceTarget, tokens: Tensor, captions: list[str], layers: Sequence[int]) -> Tensor:
    return target.teach(tokens, captions, layers)
