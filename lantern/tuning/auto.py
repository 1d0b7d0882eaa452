"""tree=auto, which asks what Sequoia (2402.12374) asks: what decodes fastest with this model, drafter, rule, device and
batch size: a tree, a window, both, or none. Two images are decoded with a few shapes; from what these commit and what
their rounds cost the best one is estimated, and taken only if it, or one close to it, then beats plain decoding side
by side."""

import logging
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple, Protocol

import numpy as np

from lantern.data.prompts import Batch
from lantern.errors import LanternError
from lantern.evaluation.timing import alternating
from lantern.tuning.families import Family, Size
from lantern.types import Generation, Round, Shape, TreePolicy

LEARNED_FROM = 2  # images
TIMED = 3  # images at least, of the best shapes that are tried
TURNS = 2  # batches at least, in either order
NEAR = 0.95  # times the best shape's speed, or it is not timed again
FIRST_ROUNDS = 8  # timed where a batch is too dear to decode with every shape
WORTH_TRYING = 0.9  # times plain decoding's estimated speed; first rounds flatter it, whose cache is read once a node
MARGIN = 1.05  # times plain decoding's measured speed, or nothing is drafted: what two batches can tell apart

log = logging.getLogger(__name__)


class Decoder(Protocol):
    """A pipeline."""

    def generate(self, prompts: Sequence[str], seeds: Sequence[int], batch_size: int) -> Generation: ...
    def first_rounds(self, prompts: Sequence[str], seeds: Sequence[int], count: int) -> list[Round]: ...
    def describe(self) -> dict[str, object]: ...


class Decoders(Protocol):
    """Pipelines that differ in their shape; None is plain decoding."""

    takes: frozenset[str]  # what their drafter can be told, by name

    def __call__(self, shape: TreePolicy | Shape | None) -> Decoder: ...


class SavedChoice(Protocol):
    """Where a run keeps what was found."""

    def read(self) -> list[Shape | None]: ...  # nothing where nothing is kept
    def write(self, shape: Shape | None) -> None: ...


class Estimate(NamedTuple):
    """By a family that knows."""

    family: Family
    sizes: list[Size]  # the one that should be fastest, and the best of the shallowest
    speed: float  # tokens a second of the best


class AutoTree:
    """Not a tree yet: assemble() resolves it before decoding starts, for `batch_size` images at once."""

    name = kind = "auto"
    width = 0

    def __init__(
        self, families: Sequence[Family], prompts: Sequence[str], batch_size: int = 1, kept: SavedChoice | None = None
    ) -> None:
        """prompts: those of the images that are decoded to find out; kept: where the answer is, once it is known."""
        self.families, self.prompts, self.batch_size, self.kept = families, prompts, batch_size, kept
        self.found: Shape | None = None  # by resolve

    def at(self, batch_size: int) -> "AutoTree":
        """The same search for another batch size."""
        return AutoTree(self.families, self.prompts, batch_size)

    def keeping(self, kept: SavedChoice) -> "AutoTree":
        """The same search for a run that may be killed, which then goes on with what it found."""
        return AutoTree(self.families, self.prompts, self.batch_size, kept)

    def fitting(self, takes: frozenset[str]) -> list[Family]:
        """Of the families whose settings a drafter takes those that decide most of them."""
        known = [family for family in self.families if family.settings <= takes]
        most = max((len(family.settings) for family in known), default=0)
        return [family for family in known if len(family.settings) == most]

    def resolve(self, decoders: Decoders) -> Shape | None:
        """-> the fastest shape found, or None."""
        known = self.kept.read() if self.kept else []
        self.found = known[0] if known else self._search(decoders)
        if self.kept and not known:
            self.kept.write(self.found)
        return self.found

    def _search(self, decoders: Decoders) -> Shape | None:
        best, speed = fastest(decoders, self._candidates(decoders), self._batches())
        chosen = best if speed >= MARGIN else None
        log.info(
            "tree=auto is %s at batch %d: the best it found is %s, %.2f times as fast as plain decoding",
            *(decoders(chosen).describe()["tree"], self.batch_size, decoders(best).describe()["tree"], speed),
        )
        return chosen

    def _candidates(self, decoders: Decoders) -> list[Shape]:
        plain = self._seconds(decoders(None), learn(decoders(None), self.prompts))
        estimates = []
        refused: LanternError | None = None
        for family in self.fitting(decoders.takes):
            try:
                parts = [decoders(family.shape(size)) for size in family.sampled]
                runs = [learn(part, self.prompts) for part in parts]
            except LanternError as error:  # a rule or a drafter that does not go with such trees
                refused = error
                continue
            costs = [self._seconds(part, run) for part, run in zip(parts, runs, strict=True)]
            estimates.append(estimated(family, [run.rounds for run in runs], costs, plain))
        if refused and not estimates:
            raise refused
        worthy = [estimate for estimate in estimates if estimate.speed * plain >= WORTH_TRYING]
        return [family.shape(size) for family, best, _ in worthy for tree in best for size in family.near(tree)]

    def _seconds(self, decoder: Decoder, run: Generation) -> float:
        """Of a round at this batch size. run: image by image."""
        if self.batch_size == 1:
            return seconds_of(run.rounds)
        batch = Batch.cycle(self.prompts, self.batch_size, seed=0)
        return seconds_of(decoder.first_rounds(batch.prompts, batch.seeds, FIRST_ROUNDS))

    def _batches(self) -> list[Batch]:
        count = max(TURNS, -(-TIMED // self.batch_size))
        return [Batch.cycle(self.prompts, self.batch_size, seed=1 + number) for number in range(count)]


def learn(decoder: Decoder, prompts: Sequence[str]) -> Generation:
    """Image by image: what an image commits does not depend on its company."""
    batch = Batch.cycle(prompts, LEARNED_FROM, seed=0)
    return decoder.generate(batch.prompts, batch.seeds, 1)


def seconds_of(rounds: Sequence[Round]) -> float:
    return median(turn.ms for turn in rounds) / 1e3


def estimated(
    family: Family, runs: Sequence[Sequence[Round]], seconds: Sequence[float], plain: float | None = None
) -> Estimate:
    """runs: the rounds of the sampled sizes; seconds: of a round of each, and of a plain one."""
    known = family.learned(runs)
    cost = round_cost(family.sampled, seconds, plain)
    speeds = {size: known.tokens(size) / cost(size) for size in known.sizes()}
    best: dict[int, Size] = {}  # by levels, whose price is the least certain
    for size in sorted(speeds, key=speeds.__getitem__, reverse=True):
        best.setdefault(size.levels, size)
    first, *others = best.values()
    others.sort(key=lambda size: size.levels)  # the shallowest one depends least on that price
    return Estimate(known, [first, *others[:1]], speeds[first])


def round_cost(sizes: Sequence[Size], seconds: Sequence[float], plain: float | None = None) -> Callable[[Size], float]:
    """Seconds of a round by its size: a constant, a share a node and a share a level, fitted to sizes and to plain
    decoding's, which has neither."""
    known = [*zip(sizes, seconds, strict=True), *([(Size(0, 0), plain)] if plain else [])]
    parts = np.array([_parts(size) for size, _ in known], dtype=float)
    shares = np.linalg.lstsq(parts, np.array([time for _, time in known]), rcond=None)[0]
    least = min(seconds) / 2  # a fit to noise must not promise rounds for nothing
    return lambda size: max(least, float(shares @ _parts(size)))


def _parts(size: Size) -> list[int]:
    return [1, size.nodes + size.window, size.levels]


def fastest(
    decoders: Decoders, shapes: Sequence[Shape], batches: Sequence[Batch]
) -> tuple[Shape | None, float]:  # with its speed in terms of plain decoding's
    """All decode the same images in turn, in an order that alternates, so that a machine that slows down meanwhile does
    so for all; from the second batch on those alone that are near the best, and plain decoding."""
    if not shapes:
        return None, 1.0
    tried: list[Shape | None] = [None, *shapes]
    seconds = dict.fromkeys(range(len(tried)), 0.0)
    for number, (prompts, _, seeds) in enumerate(batches):
        for place in alternating(number, list(seconds)):
            seconds[place] += decoders(tried[place]).generate(prompts, seeds, len(prompts)).latency_s
        best = min(list(seconds)[1:], key=seconds.__getitem__)
        seconds = {place: spent for place, spent in seconds.items() if not place or spent * NEAR <= seconds[best]}
    return tried[best], seconds[0] / seconds[best]
