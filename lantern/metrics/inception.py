"""The network of the FID (1706.08500): torch-fidelity's Inception, from a local file of its weights."""

from pathlib import Path

from torch import Tensor, nn
from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3, FeatureExtractorInceptionV3

from lantern.data.image_sets import as_bytes
from lantern.errors import CheckpointError, explaining
from lantern.models.checkpoints import read_weights
from lantern.runtime.hardware import resolve_device

LAYERS = ["2048"]  # of the last pooling
FETCH = f"fetch {URL_INCEPTION_V3} (91 MB) and give its path as metrics.fidelity.extractor.weights=…"
WITHOUT_WEIGHTS = (
    f"the FID needs the weights of torch-fidelity's Inception; {FETCH}; without them 'metrics=[fidelity_vision]' "
    "judges by DINOv2's features and 'metrics=[fidelity]' by those of the embedded critic"
)


class Inception(nn.Module):
    """Features of images from any device."""

    resize = f"bilinear as in TensorFlow 1, {FeatureExtractorInceptionV3.INPUT_IMAGE_SIZE}"

    def __init__(self, body: FeatureExtractorInceptionV3) -> None:
        super().__init__()
        self.body = body

    def features(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] in [0, 1] -> [B, 2048]"""
        return self.body(as_bytes(images).to(next(self.parameters()).device))[0]


def load_inception(weights: str | Path | None, device: str = "cpu") -> Inception:
    """weights: the file of torch-fidelity's releases."""
    if weights is None:
        raise CheckpointError(WITHOUT_WEIGHTS)
    read_weights(weights)  # torch-fidelity would execute code in the file
    with explaining(f"{weights} holds no weights of torch-fidelity's Inception", FETCH):
        body = FeatureExtractorInceptionV3("inception", LAYERS, feature_extractor_weights_path=str(weights))
    return Inception(body).to(resolve_device(device))
