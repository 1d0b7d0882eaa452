"""What the demo does in the minutes it is given, chosen from a few timings of this machine."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

RESERVE = 0.1  # of the time, for a machine that slows down
TRAINING = 0.5  # share of the rest, preparation included
LEAST_TRAINING_S = 20
REFERENCES = 2  # lossless points beside those of delta: the drafter just trained, and the shipped one
REFERENCES_TIMED = 3  # times num_prompts
PREPARATION_S, POINT_S, START_S = 20.0, 5.0, 10.0  # of training; of a point's judging; of two processes and the report
TRAINING_IMAGES = (512, 256)  # the first whose features take less than half of the training's share
VALIDATION_IMAGES, LAW_IMAGES = 64, 8  # drawn by the target; decoded again for the output TV
BATCH_COST = 1.6  # of an image decoded in a batch by a method, over one by plain decoding
FEATURES_COST = 0.4  # of an image's features, over the same


@dataclass(frozen=True)
class Timings:
    """Seconds an image on this machine."""

    plain: float
    plain_in_batch: float
    lossless: float  # the refined window, with the shipped drafter
    trees: Mapping[str, float]  # LANTERN at delta 0.1, by the overrides that choose its draft tree

    @property
    def best_tree(self) -> str:
        """The tree on which LANTERN is fastest."""
        return min(self.trees, key=self.trees.__getitem__)


@dataclass(frozen=True)
class Size:
    """Of the sweep."""

    deltas: tuple[float, ...]
    num_prompts: int  # timed
    num_images: int  # judged


SIZES = (  # smallest first
    Size((0.03, 0.4), 3, 16),
    Size((0.03, 0.4), 4, 24),
    Size((0.01, 0.1, 0.4), 5, 24),
    Size((0.01, 0.1, 0.4), 6, 32),
    Size((0.003, 0.03, 0.1, 0.4), 6, 48),
    Size((0.003, 0.01, 0.03, 0.1, 0.4), 8, 64),
    Size((0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.4), 8, 80),
)


@dataclass(frozen=True)
class DemoPlan:
    """The sizes of a demo, and what they are expected to take."""

    minutes: float
    tree: str  # overrides
    training_s: int
    training_images: int
    size: Size
    expected_s: float  # the reserve left out
    timings: Timings

    def record(self) -> dict[str, object]:
        """For plan.json."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """What was chosen, in two lines."""
        deltas = ", ".join(f"{delta:g}" for delta in self.size.deltas)
        return [
            f"This machine: plain decoding {self.timings.plain:.1f} s an image, the refined window "
            f"{self.timings.lossless:.1f} s; LANTERN is fastest on {self.tree}.",
            f"Chosen for {self.minutes:g} minutes: {self.training_s} s of training on {self.training_images} "
            f"images, δ = {deltas}, {self.size.num_prompts} images timed and {self.size.num_images} judged a setting; "
            f"expected: {self.expected_s / 60:.1f} minutes.",
        ]


def plan_demo(minutes: float, timings: Timings, spent_s: float) -> DemoPlan:
    """The largest sweep that fits beside training, and the smallest where none does. spent_s: seconds that are gone."""
    left = (1 - RESERVE) * 60 * minutes - spent_s - START_S
    fits = (count for count in TRAINING_IMAGES if preparation_s(count, timings) < TRAINING * left / 2)
    images = next(fits, TRAINING_IMAGES[-1])
    preparation, smallest = preparation_s(images, timings), sweep_s(SIZES[0], timings)
    training = max(LEAST_TRAINING_S, min(TRAINING * left, left - smallest) - preparation)
    tokens_left = left - preparation - training
    size = [SIZES[0], *(size for size in SIZES if sweep_s(size, timings) <= tokens_left)][-1]
    expected = spent_s + START_S + preparation + training + sweep_s(size, timings)
    return DemoPlan(minutes, timings.best_tree, round(training), images, size, expected, timings)


def preparation_s(images: int, timings: Timings) -> float:
    """Seconds before the first training step: tokens and features of the images, and others drawn for validation."""
    return PREPARATION_S + (VALIDATION_IMAGES + FEATURES_COST * images) * timings.plain_in_batch


def sweep_s(size: Size, timings: Timings) -> float:
    """Seconds of a sweep: of every point a warm-up, its timing against plain decoding, its images and their judging."""
    lossy, lossless = len(size.deltas), REFERENCES
    tree = timings.trees[timings.best_tree]
    timed = lossy * (timings.plain + tree) + REFERENCES_TIMED * (timings.plain + timings.lossless)
    batches = size.num_images + (lossy + lossless) * BATCH_COST * (size.num_images + LAW_IMAGES)
    judging = (lossy + lossless) * POINT_S
    return (size.num_prompts + 1) * timed + batches * timings.plain_in_batch + judging
