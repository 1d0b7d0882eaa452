"""Features of a vision network from local files of `transformers`, such as DINOv2 (2304.07193) or CLIP (2103.00020)."""

import json
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from lantern.errors import CheckpointError

STANDARD = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}


class VisionFeatures(nn.Module):
    """The pooled output. Whole images are resized to the network's own size, bicubic with antialiasing."""

    def __init__(self, body: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.body, self.size = body, body.config.image_size
        self.resize = f"bicubic antialiased {self.size}"
        self.register_buffer("mean", mean.view(3, 1, 1))
        self.register_buffer("std", std.view(3, 1, 1))

    def features(self, images: Tensor) -> Tensor:  # [B, 3, H, W] in [0, 1] -> [B, F]
        sized = interpolate(images, (self.size, self.size), mode="bicubic", antialias=True).clamp(0, 1)
        return self.body((sized - self.mean) / self.std).pooler_output


def load_vision(folder: str | Path) -> VisionFeatures:
    """The network of a local folder, nothing downloaded. CheckpointError if it is none."""
    from transformers import AutoConfig, AutoModel, CLIPVisionModel

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        kind = CLIPVisionModel if config.model_type.startswith("clip") else AutoModel
        body = kind.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{folder} holds no vision network ({str(error).splitlines()[0]}); download one of `transformers`, such as "
            f"facebook/dinov2-base, and give its folder"
        ) from error
    processing = Path(folder) / "preprocessor_config.json"
    told = STANDARD | (json.loads(processing.read_text()) if processing.is_file() else {})
    mean, std = (torch.tensor(told[name]) for name in ("image_mean", "image_std"))
    return VisionFeatures(body, mean, std).eval().requires_grad_(False)
