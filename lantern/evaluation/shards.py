"""What one of several workers does of an evaluation: its own share first, then what the others have not begun, or have
left behind. Nothing is measured: a later run reads all records."""

from collections.abc import Iterator, Sequence
from functools import partial

from lantern.data.prompts import Batch
from lantern.evaluation.leases import Leases, Piece, finish
from lantern.evaluation.plan import Folders, Plan
from lantern.evaluation.records import key_of
from lantern.evaluation.retiming import retime
from lantern.evaluation.side import Side
from lantern.evaluation.timing import Maker, alternating, groups_of, make_in_batches, timings_lost, warm_up


def work_off(plan: Plan, folders: Folders, sides: Sequence[Side], compiled: Sequence[Side]) -> None:
    """Returns when all images are timed and made, by whichever worker."""
    leases = Leases(folders.leases, plan.lease_s)
    if plan.num_timed:
        timing = SharedTiming([side.timer for side in (*sides, *compiled)], plan.timed(0))
        finish([piece for share in plan.shares(timing.batch) for piece in timing.pieces(share)], leases)
        retime(timing.makers, timing.own(plan.own(timing.batch)), plan.max_retimed)
    if plan.makes_batches:
        makers, shares = [side.image_maker() for side in sides], plan.shares(plan.batch)
        finish([piece for share in shares for piece in _groups(makers, share, plan.batch_size)], leases)


class SharedTiming:
    """Times images one by one, plain decoding and the method in turn on one worker, because their ratio counts."""

    def __init__(self, makers: Sequence[Maker], batch: Batch) -> None:
        self.makers, self.batch = makers, batch
        self._is_warm = False
        self._timed: set[tuple[str, int]] = set()  # by this worker

    def pieces(self, share: Batch) -> Iterator[Piece]:
        """One for each image of a share."""
        for number, image in enumerate(zip(*share, strict=True)):
            name = key_of("speed", [maker.ledger.key for maker in self.makers], image)
            yield Piece(name, partial(self._has, *image[:2]), partial(self._time, number, image))

    def own(self, share: Batch) -> Batch:
        """The images that this worker has timed, and those of its share that it found timed."""
        images = zip(*self.batch, strict=True)
        mine = set(zip(share.prompts, share.copies, strict=True))
        kept = [image for image in images if image[:2] in self._timed or (image[:2] in mine and self._has(*image[:2]))]
        return Batch(*(list(values) for values in zip(*kept, strict=True))) if kept else Batch([], [], [])

    def _has(self, prompt: str, copy: int) -> bool:
        return all(maker.has_timed(prompt, copy) for maker in self.makers)

    def _time(self, number: int, image: tuple[str, int, int], begun: int) -> None:
        if not self._is_warm:
            warm_up(self.makers, self.batch)
            self._is_warm = True
        # what those who began it have left is read by a later run, and may be one side alone: these timings outrank it
        lost = max(begun, timings_lost(self.makers, *image[:2]))
        for maker in alternating(number, self.makers):
            maker.time_counted(*image, lost)
        self._timed.add(image[:2])


def _groups(makers: Sequence[Maker], share: Batch, batch_size: int) -> Iterator[Piece]:
    """The groups in which a share is made, by every maker. They do not depend on who makes them."""
    for group in groups_of(share, batch_size):
        for maker in makers:
            name = key_of("images", maker.ledger.key, group)
            yield Piece(name, partial(_has_all, maker, group), partial(_make, maker, group, batch_size))


def _make(maker: Maker, group: Batch, batch_size: int, begun: int) -> None:
    make_in_batches(maker, group, batch_size)


def _has_all(maker: Maker, group: Batch) -> bool:
    return all(maker.ledger.find("images", *image) for image in zip(group.prompts, group.copies, strict=True))
