"""The frozen target's features under teacher forcing: those of its decoding passes, at all positions at once."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lantern.drafters.eagle.feature_drafter import layered
from lantern.types import DraftTree, Target


@runtime_checkable
class Teachable(Protocol):
    """A target that computes the features of an image in one pass, without its cache and its head."""

    def teach(self, tokens: Tensor, prompts: Sequence[str], layers: Sequence[int] = ()) -> Tensor:
        """As target_features."""


def guided_target(target: Target, cfg_scale: float) -> Target:
    """The target under the guidance that decoding will use, for all parts of a training run to share."""
    return target.configured(cfg_scale)


def target_features(target: Target, tokens: Tensor, captions: list[str], layers: Sequence[int] = ()) -> Tensor:
    """tokens [B, L] behind captions -> features [B, R, P + L - 1, F] after the final norm, and behind them the inputs
    of `layers`: those of Forward.features, in the precision of decoding also under a training's autocast.

    LanternError for layers that the target does not hand out.
    """
    with torch.autocast(tokens.device.type, enabled=False):
        if not isinstance(target, Teachable):
            return features_of_decoding(target, tokens, captions, layers)
        with torch.no_grad():
            return target.teach(tokens, captions, layers)


def features_of_decoding(target: Target, tokens: Tensor, captions: list[str], layers: Sequence[int] = ()) -> Tensor:
    """target_features of any target, in the precision set around it: one verification pass of the image as a chain."""
    batch, length = len(tokens), tokens.shape[1] - 1
    target.allocate(batch, length)
    if layers:
        layered(target).hand_out(layers)
    prefix = target.prefill(captions, torch.arange(batch, device=tokens.device)).features
    parents = torch.arange(-1, length - 1, device=tokens.device).expand(batch, -1)
    return torch.cat([prefix, target.verify(DraftTree(tokens[:, :-1], parents)).features], dim=2)
