"""Features of images by torch-fidelity, from any network with a method `features`. It is imported with the first
features: it brings torchvision with it, which no image need wait for."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.utils.data import Dataset

from lantern.identity import state_hash

LAYER = "features"
QUIET = {"verbose": False, "save_cpu_ram": True}
_networks: dict[str, nn.Module] = {}


class ImageDataset(Dataset):
    """images [N, 3, H, W] in [0, 1] as torch-fidelity reads them: uint8 [3, H, W] each."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return (self.images[index] * 255).round().clamp(0, 255).byte().cpu()


def register_extractor(network: nn.Module) -> str:
    """Makes network.features, images [N, 3, H, W] in [0, 1] -> [N, F], known to extract_features. Returns its name,
    which holds a hash of its weights: torch-fidelity identifies extractors and cached features by name only."""
    name = f"{type(network).__name__.lower()}-{network_hash(network)}"
    _networks.setdefault(name, network)
    return name


def network_hash(network: nn.Module) -> str:
    """Twelve hex digits of the SHA-256 of its weights."""
    return state_hash(network)


def _extractor_class(network: nn.Module) -> type[nn.Module]:
    from torch_fidelity.feature_extractor_base import FeatureExtractorBase

    class Extractor(FeatureExtractorBase):
        def __init__(self, name: str, features_list: Sequence[str], **_: object) -> None:
            super().__init__(name, features_list)
            self.network = network  # a submodule, so that torch-fidelity can move it to a device

        @staticmethod
        def get_provided_features_list() -> tuple[str]:
            return (LAYER,)

        @staticmethod
        def get_default_feature_layer_for_metric(metric: str) -> str:
            return LAYER

        @staticmethod
        def can_be_compiled() -> bool:
            return False

        def forward(self, images: Tensor) -> tuple[Tensor]:  # uint8 [N, 3, H, W]
            return (self.network.features(images.float() / 255).float(),)

    return Extractor


def extract_features(images: Tensor, extractor: str, batch_size: int = 64) -> Tensor:
    """images [N, 3, H, W] in [0, 1] -> features [N, F], float64, by a registered extractor."""
    from torch_fidelity.registry import FEATURE_EXTRACTORS_REGISTRY, register_feature_extractor
    from torch_fidelity.utils import create_feature_extractor, get_featuresdict_from_dataset

    if extractor not in FEATURE_EXTRACTORS_REGISTRY:
        register_feature_extractor(extractor, _extractor_class(_networks[extractor]))
    network = create_feature_extractor(extractor, [LAYER], cuda=images.is_cuda, **QUIET)
    features = get_featuresdict_from_dataset(
        ImageDataset(images), network, batch_size, images.is_cuda, save_cpu_ram=True, verbose=False
    )
    return features[LAYER].double()
