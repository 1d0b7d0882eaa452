"""Fréchet and kernel distance, precision and recall of images against real ones, by torch-fidelity with an extractor
of one's own (Heusel et al., 1706.08500; Bińkowski et al., 1801.01401; Kynkäänniemi et al., 1904.06991)."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from torch_fidelity.feature_extractor_base import FeatureExtractorBase
from torch_fidelity.metric_fid import (
    KEY_METRIC_FID,
    fid_features_to_statistics,
    fid_statistics_to_metric,
)
from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, kid_features_to_metric
from torch_fidelity.metric_prc import (
    KEY_METRIC_PRECISION,
    KEY_METRIC_RECALL,
    prc_features_to_metric,
)
from torch_fidelity.registry import (
    FEATURE_EXTRACTORS_REGISTRY,
    register_feature_extractor,
)
from torch_fidelity.utils import create_feature_extractor, get_featuresdict_from_dataset

from lantern.errors import LanternError

LAYER = "features"
KERNEL_SUBSET, KERNEL_SUBSETS = 1000, 50
NEIGHBOURHOOD = 3
NORMAL_95 = 1.96
QUIET = {"verbose": False, "save_cpu_ram": True}
MIN_IMAGES = 8
References = Callable[[tuple[str, ...], int], Tensor]  # prompts, a number -> as many real images [N, 3, H, W] in [0, 1]


class Fidelity:
    """Judges images against real ones of the same prompts. Every value depends on how many images both sides have."""

    def __init__(
        self, critic: nn.Module, references: References, num_references: int = 512, resamples: int = 50
    ) -> None:
        self.extractor = register_extractor(critic)
        self.references, self.num_references, self.resamples = references, num_references, resamples

    def prepare(self, prompts: Sequence[str]) -> None:
        """LanternError for too few images, or prompts that no real image can be made for."""
        if len(prompts) < MIN_IMAGES:
            raise LanternError(
                f"quality.num_images={len(prompts)} is too few to judge by; use at least {MIN_IMAGES}, or 0"
            )
        self._real_features(prompts)

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> dict[str, float]:
        """images [N, 3, H, W] in [0, 1] -> Fréchet and kernel distance, precision and recall, with 95 % bounds."""
        real, generated = self._real_features(prompts), extract_features(images, self.extractor)
        values: dict[str, float] = {}
        for name, distance in (("frechet", frechet_distance), ("kernel", kernel_distance)):
            values |= _bounded(name, *with_bounds(distance, generated, real, self.resamples))
        values["frechet_low"] = max(0.0, values["frechet_low"])  # of the two, only the kernel distance can be negative
        precision, recall = precision_recall(generated, real)
        values |= _bounded("precision", precision, *share_bounds(precision, len(generated)))
        return values | _bounded("recall", recall, *share_bounds(recall, len(real)))

    def _real_features(self, prompts: Sequence[str]) -> Tensor:
        return _reference_features(self.extractor, self.references, tuple(prompts), self.num_references)


@lru_cache(maxsize=8)
def _reference_features(extractor: str, references: References, prompts: tuple[str, ...], count: int) -> Tensor:
    return extract_features(references(prompts, count), extractor)


def _bounded(name: str, value: float, low: float, high: float) -> dict[str, float]:
    return {name: value, f"{name}_low": low, f"{name}_high": high}


class ImageDataset(Dataset):
    """images [N, 3, H, W] in [0, 1] as torch-fidelity wants them: uint8 [3, H, W] each."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return (self.images[index] * 255).round().clamp(0, 255).byte().cpu()


def register_extractor(critic: nn.Module) -> str:
    """Makes critic.features, images [N, 3, H, W] in [0, 1] -> [N, F], known to torch-fidelity. Returns its name, which
    holds a hash of its weights: torch-fidelity tells extractors apart, cached features too, by name only."""
    digest = sha256()
    for key, value in sorted(critic.state_dict().items()):
        digest.update(key.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    name = f"lantern-critic-{digest.hexdigest()[:12]}"
    if name not in FEATURE_EXTRACTORS_REGISTRY:
        register_feature_extractor(name, _extractor_class(critic))
    return name


def _extractor_class(critic: nn.Module) -> type[FeatureExtractorBase]:
    class CriticExtractor(FeatureExtractorBase):
        def __init__(self, name: str, features_list: Sequence[str], **_: object) -> None:
            super().__init__(name, features_list)
            self.critic = critic  # a submodule, so that torch-fidelity can move it to a device

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
            return (self.critic.features(images.float() / 255).float(),)

    return CriticExtractor


def extract_features(images: Tensor, extractor: str, batch_size: int = 64) -> Tensor:
    """images [N, 3, H, W] in [0, 1] -> features [N, F], float64, by a registered extractor."""
    network = create_feature_extractor(extractor, [LAYER], cuda=images.is_cuda, **QUIET)
    features = get_featuresdict_from_dataset(
        ImageDataset(images), network, batch_size, images.is_cuda, save_cpu_ram=True, verbose=False
    )
    return features[LAYER].double()


def frechet_distance(generated: Tensor, real: Tensor) -> float:
    """Distance of the two Gaussians fitted to features [N, F]; biased upwards by about 1/N, so compare at equal N."""
    statistics = [fid_features_to_statistics(features) for features in (generated, real)]
    return fid_statistics_to_metric(*statistics, verbose=False)[KEY_METRIC_FID]


def kernel_distance(generated: Tensor, real: Tensor) -> float:
    """Squared maximum mean discrepancy under the cubic kernel, unbiased, so that it may be negative."""
    subset = min(KERNEL_SUBSET, len(generated), len(real))
    return kid_features_to_metric(
        generated, real, kid_subset_size=subset, kid_subsets=KERNEL_SUBSETS, **QUIET
    )[KEY_METRIC_KID_MEAN]  # fmt: skip


def precision_recall(generated: Tensor, real: Tensor) -> tuple[float, float]:
    """Share of generated images within the real manifold, and of real ones within the generated manifold."""
    found = prc_features_to_metric(generated, real, prc_neighborhood=NEIGHBOURHOOD, **QUIET)
    return found[KEY_METRIC_PRECISION], found[KEY_METRIC_RECALL]


def with_bounds(
    distance: Callable[[Tensor, Tensor], float], generated: Tensor, real: Tensor, resamples: int, seed: int = 0
) -> tuple[float, float, float]:
    """A distance and its 95 % bounds: estimate -+ 1.96 standard errors over bootstrap resamples of the generated
    images. Percentiles of the resamples would be wrong here: repeated images bias every resample upwards."""
    estimate = distance(generated, real)
    rng = np.random.default_rng(seed)
    draws = (generated[torch.from_numpy(rng.integers(len(generated), size=len(generated)))] for _ in range(resamples))
    margin = NORMAL_95 * float(np.std([distance(draw, real) for draw in draws], ddof=1))
    return estimate, estimate - margin, estimate + margin


def share_bounds(share: float, count: int) -> tuple[float, float]:
    """95 % bounds of a share of `count` images (Wilson's interval, which stays within [0, 1])."""
    centre, spread = share + NORMAL_95**2 / (2 * count), share * (1 - share) / count + (NORMAL_95 / (2 * count)) ** 2
    scale = 1 + NORMAL_95**2 / count
    return (centre - NORMAL_95 * spread**0.5) / scale, (centre + NORMAL_95 * spread**0.5) / scale
