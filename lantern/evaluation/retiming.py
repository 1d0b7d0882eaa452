"""Times disturbed images again, by a rule that is fixed before anything is timed and looks at no method's speed-up."""

from collections.abc import Sequence

from lantern.data.prompts import Batch
from lantern.evaluation.records import timings_before
from lantern.evaluation.rows import Row
from lantern.evaluation.timing import Maker, call_in_turn, recorded, warm_up

BUSY_CORES = 0.25  # used by other processes, above which a timing is disturbed
Timing = tuple[str, int, int, int]  # prompt, copy, seed, how many timings the image will have had before


def retime(makers: Sequence[Maker], batch: Batch, most: int) -> None:
    """Times an image again with every maker, at most `most` times, while its last timings are disturbed, and once more
    where a process ended between them. The records hold every timing."""
    is_warm = False
    while due := _to_time(makers, batch, most):  # every pass raises their counts, so that it ends
        if not is_warm:
            warm_up(makers, batch)
            is_warm = True
        call_in_turn([maker.time for maker in makers], due)


def _to_time(makers: Sequence[Maker], batch: Batch, most: int) -> list[Timing]:
    """The images to be timed once more, by all makers: the disturbed ones, and those whose turn was cut short."""
    images = list(zip(*batch, strict=True))
    if not images:  # a shard without any
        return []
    timed = list(zip(*(recorded(maker.ledger, "speed", batch) for maker in makers), strict=True))
    numbers = [_next(lines, most) for lines in timed]
    return [(*image, before) for image, before in zip(images, numbers, strict=True) if before]


def _next(lines: Sequence[Row], most: int) -> int:
    """How many timings of an image precede the one that is due; 0 where none is."""
    counts = [timings_before(line) for line in lines]
    is_cut_short = min(counts) < max(counts)
    return max(counts) + 1 if is_cut_short or (max(counts) < most and is_disturbed(lines)) else 0


def is_disturbed(lines: Sequence[Row]) -> bool:
    """lines: an image's timings. Their times do not count: a method's differ by image, so that slow spells could be
    sought on plain decoding's side alone, which would lower every speed-up."""
    return any((line["other_cores"] or 0.0) > BUSY_CORES for line in lines)
