"""Times disturbed images again, by a rule that is fixed before anything is timed and looks at no method's speed-up."""

from collections.abc import Sequence
from functools import partial
from statistics import median

from lantern.data.prompts import Batch
from lantern.evaluation.records import timings_before
from lantern.evaluation.rows import Row
from lantern.evaluation.timing import Maker, call_in_turn, recorded, warm_up

BUSY_CORES = 0.25  # used by other processes, above which a timing is disturbed
FAR = 1.5  # times the median of plain decoding, or less than 1 / FAR of it
Image = tuple[str, int, int]  # prompt, copy, seed


def retime(makers: Sequence[Maker], batch: Batch, most: int) -> None:
    """Times an image again with every maker, at most `most` times, while its last timings are disturbed. The first
    maker decodes plainly. The records hold every timing, and an interrupted run goes on with the same images."""
    is_warm = False
    for turn in range(1, most + 1):
        images = _to_time(makers, batch, turn)
        if not images:
            return
        if not is_warm:
            warm_up(makers, batch)
            is_warm = True
        call_in_turn([partial(maker.time, before=turn) for maker in makers], images)


def _to_time(makers: Sequence[Maker], batch: Batch, turn: int) -> list[Image]:
    """The images to be timed once more after `turn` timings: the disturbed ones, and those whose turn was cut short."""
    images = list(zip(*batch, strict=True))
    if not images:  # a shard without any
        return []
    timed = list(zip(*(recorded(maker.ledger, "speed", batch) for maker in makers), strict=True))
    usual = median(lines[0]["latency_s"] for lines in timed)
    return [image for image, lines in zip(images, timed, strict=True) if _is_due(lines, usual, turn)]


def _is_due(lines: Sequence[Row], usual: float, turn: int) -> bool:
    counts = [timings_before(line) for line in lines]
    if min(counts) >= turn:
        return False
    return max(counts) >= turn or is_disturbed(lines, usual)


def is_disturbed(lines: Sequence[Row], usual: float) -> bool:
    """lines: an image's timings, plain decoding's first; usual: the median latency of plain decoding."""
    is_far = not usual / FAR <= lines[0]["latency_s"] <= usual * FAR
    return is_far or any((line["other_cores"] or 0.0) > BUSY_CORES for line in lines)
