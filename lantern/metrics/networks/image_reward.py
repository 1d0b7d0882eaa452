"""ImageReward (2304.05977), a BLIP, by the package image-reward."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn
from torchvision.transforms.functional import to_pil_image

from lantern.errors import CheckpointError, LanternError
from lantern.runtime.hardware import resolve_device


class ImageReward(nn.Module):
    """Scores images by their reward."""

    resize = "bicubic 224, by image-reward"

    def __init__(self, body: nn.Module) -> None:
        """body.score: a prompt and a picture -> its reward."""
        super().__init__()
        self.body = body

    @torch.inference_mode()
    def scores(self, images: Tensor, prompts: Sequence[str]) -> Tensor:  # [B, 3, H, W] in [0, 1] -> [B]
        pictures = [to_pil_image((image * 255).round().clamp(0, 255).byte().cpu()) for image in images]
        return torch.tensor([self.body.score(prompt, shown) for prompt, shown in zip(prompts, pictures, strict=True)])


def load_image_reward(checkpoint: str | Path, config: str | Path, device: str = "cpu") -> ImageReward:
    """checkpoint: ImageReward.pt; config: med_config.json; device: as resolve_device reads it. LanternError without the
    package, CheckpointError without the files, which the package would download."""
    try:
        package = import_module("ImageReward")
    except ImportError as error:
        raise LanternError(
            f"ImageReward needs the package image-reward ({error}); install it by `pip install image-reward`, or leave "
            f"image_reward out of metrics"
        ) from error
    for name, path in (("ImageReward.pt", checkpoint), ("med_config.json", config)):
        if not Path(path).is_file():
            raise CheckpointError(f"no file {path}; fetch {name} from the Hub's THUDM/ImageReward and give its path")
    try:
        body = package.load(str(checkpoint), device=str(resolve_device(device)), med_config=str(config))
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{checkpoint} could not be loaded by image-reward ({str(error).splitlines()[0]}); it also reads the "
            f"tokenizer of bert-base-uncased, which must be in the Hub's cache"
        ) from error
    return ImageReward(body).eval().requires_grad_(False)
