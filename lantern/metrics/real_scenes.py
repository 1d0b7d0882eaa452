"""Real images for the fidelity metrics: scenes of the same captions, rendered with seeds that nothing else uses."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lantern.data.scenes import SPLITS, render_caption
from lantern.errors import LanternError

FIRST_SEED = SPLITS["test"].start + 500_000_000  # far from the test scenes whose captions are the prompts


def scene_references(prompts: Sequence[str], count: int) -> Tensor:
    """The first `count` prompts, cycling, as scenes [count, 3, H, W] in [0, 1]. LanternError for a prompt that is no
    caption of a scene."""
    try:
        scenes = [render_caption(prompts[i % len(prompts)], FIRST_SEED + i) for i in range(count)]
    except ValueError as error:
        raise LanternError(
            f"{error}; for prompts that are no scenes give real images of your own by "
            "'metrics=[fidelity,diversity,pairs]' metrics.fidelity.references.path=<module.function>, a function "
            "(prompts, count) -> [N, 3, H, W], or judge without any by 'metrics=[diversity,pairs]', or not at all by "
            "quality.num_images=0"
        ) from error
    return torch.from_numpy(np.stack(scenes)).permute(0, 3, 1, 2).float() / 255
