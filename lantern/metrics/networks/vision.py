"""Features of a vision network from local files of `transformers`, such as DINOv2 (2304.07193) or CLIP (2103.00020)."""

from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from lantern.errors import CheckpointError
from lantern.metrics.networks.pixels import Pixels, pixels_of
from lantern.models.checkpoints import shortened
from lantern.runtime.hardware import resolve_device


class VisionFeatures(nn.Module):
    """The pooled output of a vision network as features."""

    def __init__(self, body: nn.Module, pixels: Pixels) -> None:
        super().__init__()
        self.body, self.pixels, self.resize = body, pixels, pixels.resize

    def features(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] in [0, 1] -> [B, F]"""
        return self.body(self.pixels(images)).pooler_output


def load_vision(folder: str | Path, device: str = "cpu") -> VisionFeatures:
    """The network of a local folder, nothing downloaded; device: as resolve_device reads it. CheckpointError for any
    other folder."""
    from transformers import AutoConfig, AutoModel, CLIPVisionModel

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        kind = CLIPVisionModel if config.model_type.startswith("clip") else AutoModel
        local = {"local_files_only": True, "dtype": torch.float32, "output_loading_info": True}  # whatever is stored
        body, found = kind.from_pretrained(folder, **local)
        if found["missing_keys"]:  # transformers would leave them at random
            raise ValueError(f"its weights lack {shortened(sorted(found['missing_keys']))}")
        pixels = pixels_of(folder, body.config.image_size)
    except (OSError, ValueError, KeyError, AttributeError, RuntimeError, SafetensorError, UnpicklingError) as error:
        raise CheckpointError(
            f"{folder} holds no vision network ({str(error).splitlines()[0]}); download one of `transformers`, such as "
            f"facebook/dinov2-base, and give its folder"
        ) from error
    network = VisionFeatures(body, pixels).eval().requires_grad_(False)
    return network.to(resolve_device(device))
