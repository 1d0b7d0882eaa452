"""Does an image show what its prompt asks for? The critic answers, word by word."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lantern.models.critic import IGNORED, labels_of

Judge = Callable[[Tensor], dict[str, Tensor]]  # images [B, 3, H, W] in [0, 1] -> logits [B, classes] by attribute


@torch.inference_mode()
def judge_images(critic: Judge, images: Tensor, captions: Sequence[str], batch_size: int = 64) -> dict[str, Tensor]:
    """Right or wrong [B], as 1.0 or 0.0, for texture, shape, colour and all; nan where no colour is asked for.

    images [B, 3, H, W] in [0, 1]. Raises LanternError for a caption that names no scene.
    """
    labels = labels_of(list(captions))
    logits = [critic(chunk) for chunk in images.split(batch_size)]
    answers = {name: torch.cat([part[name].argmax(-1).cpu() for part in logits]) for name in labels}
    right = {name: (answers[name] == label).double() for name, label in labels.items()}
    right["colour"][labels["colour"] == IGNORED] = torch.nan
    right["all"] = torch.stack([verdict.nan_to_num(nan=1.0) for verdict in right.values()]).amin(0)
    return right
