"""Recipes of drafter training: the default one in small, and those that ship."""

from hydra.utils import instantiate
from support.paths import ROOT

from lantern.cli.composing import composed
from lantern.training.drafter.losses import Blend, CrossEntropy, LogOverlap, Mean, Part
from lantern.training.drafter.recipe import Recipe

NAMES = sorted(path.stem for path in (ROOT / "conf" / "recipe").glob("*.yaml"))


def feature_lk(
    depth: int = 2, feature_weight: float = 1.0, overlap_weight: float = 1.0, feature_noise: float = 0.05
) -> Recipe:
    loss = Blend([Part(0.1, CrossEntropy()), Part(overlap_weight, LogOverlap())])
    return Recipe(loss, Mean(), depth, feature_weight, feature_noise)


def shipped(name: str, *overrides: str) -> Recipe:
    """The recipe of a yaml in conf/recipe."""
    return instantiate(composed(ROOT / "conf", "train", [f"recipe={name}", *overrides]).recipe)
