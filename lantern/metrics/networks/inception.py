"""The Inception network of the FID (1706.08500) and the Inception score (1606.03498), by torch-fidelity, from a local
file of its weights."""

from pathlib import Path

from torch import Tensor, nn
from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

from lantern.errors import CheckpointError
from lantern.models.checkpoints import read_weights
from lantern.runtime.hardware import resolve_device

LAYERS = ["2048", "logits_unbiased"]


class Inception(nn.Module):
    """Both the features and the logits of one body, of images from any device."""

    resize = f"bilinear as in TensorFlow 1, {FeatureExtractorInceptionV3.INPUT_IMAGE_SIZE}"

    def __init__(self, body: FeatureExtractorInceptionV3) -> None:
        super().__init__()
        self.body = body

    def features(self, images: Tensor) -> Tensor:  # [B, 3, H, W] in [0, 1] -> [B, 2048]
        """Of the last pooling, for the FID."""
        return self._layers(images)[0]

    def logits(self, images: Tensor) -> Tensor:  # [B, 3, H, W] in [0, 1] -> [B, 1008]
        """Without the last layer's bias, as in the papers' Inception scores."""
        return self._layers(images)[1]

    def _layers(self, images: Tensor) -> tuple[Tensor, Tensor]:
        pixels = (images * 255).round().clamp(0, 255).byte()
        return self.body(pixels.to(next(self.parameters()).device))


def load_inception(weights: str | Path, device: str = "cpu") -> Inception:
    """weights: the file of torch-fidelity's releases; device: as resolve_device reads it. CheckpointError if it is
    missing or something else."""
    read_weights(weights)  # torch-fidelity would execute code in the file
    try:
        body = FeatureExtractorInceptionV3("inception", LAYERS, feature_extractor_weights_path=str(weights))
    except RuntimeError as error:
        raise CheckpointError(
            f"{weights} holds no weights of torch-fidelity's Inception; fetch weights-inception-2015-12-05-6726825d.pth"
            f" from https://github.com/toshas/torch-fidelity/releases and give its path"
        ) from error
    return Inception(body).to(resolve_device(device))
