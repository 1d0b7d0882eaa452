"""The work of one of several workers, which share it out by lease files in a common folder, without a server. Only one
worker can create a lease. It expires when its content has not changed for a time, by the observer's own clock: the
clocks of two machines are never compared."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import NamedTuple

from lantern.data.prompts import Batch
from lantern.errors import unwritable
from lantern.evaluation.contender import Contender, alternating, first_valid_timing, groups_of, retime, warm_up
from lantern.evaluation.plan import Plan
from lantern.identity import image_key

BEATS = 6  # renewals of a lease within its expiry time
DONE, FREE = "done", "free"


class Piece(NamedTuple):
    """Work for one worker. If that worker dies, another does what is missing."""

    name: str
    is_recorded: Callable[[], bool]  # before this worker began, or by it
    make: Callable[[int], object]  # is told how many workers have begun it before


class Leases:
    """The leases of one job. The first lease of a piece is <name>.0; whoever takes over an expired one creates the next
    number, so that only one of several observers succeeds."""

    def __init__(self, folder: Path, expiry_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._folder, self.expiry_s, self._clock = folder, expiry_s, clock
        self._seen: dict[str, tuple[tuple[int, str], float]] = {}  # number and content, and when they were first seen

    def is_done(self, name: str) -> bool:
        return self._last(name)[1] == DONE

    def take(self, name: str) -> Path | None:
        """A new lease of this worker; None if another works on the piece or has finished it."""
        number, content = self._last(name)
        if content == DONE or (content is not None and not self._is_free(name, number, content)):
            return None
        path = self._folder / f"{name}.{number + 1}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            return None
        except OSError as error:
            raise unwritable(path, error) from error
        return path

    @contextmanager
    def hold(self, path: Path) -> Iterator[None]:
        """Renews a lease until the block ends; then it is done, or free for others if the block raised."""
        ended = Event()
        beating = Thread(target=self._beat, args=(path, ended), daemon=True)
        beating.start()
        result = FREE
        try:
            yield
            result = DONE
        finally:
            ended.set()
            beating.join()
            with suppress(OSError):  # it expires then
                path.write_text(result)

    def _beat(self, path: Path, ended: Event) -> None:
        owner = f"{socket.gethostname()} {os.getpid()}"
        for beat in count():
            with suppress(OSError):  # it may expire then, and the piece is made twice
                path.write_text(f"{owner} {beat}")
            if ended.wait(self.expiry_s / BEATS):
                return

    def _last(self, name: str) -> tuple[int, str | None]:
        """Number and content of the last lease of a piece; -1 and None without one. A lease that cannot be read is
        held by another, until it expires."""
        number = next(n for n in count() if not (self._folder / f"{name}.{n}").exists()) - 1
        if number < 0:
            return number, None
        try:
            return number, (self._folder / f"{name}.{number}").read_text()
        except OSError:
            return number, ""

    def _is_free(self, name: str, number: int, content: str) -> bool:
        seen, since = self._seen.get(name, (None, 0.0))
        if seen != (number, content):
            self._seen[name] = (number, content), self._clock()
            return content == FREE
        return content == FREE or self._clock() - since > self.expiry_s


def finish(pieces: Sequence[Piece], leases: Leases, wait: Callable[[float], object] = sleep) -> None:
    """Makes, in order, the pieces that no other worker makes, including pieces of workers that died. Returns when all
    are done."""
    left = list(pieces)
    while left := [piece for piece in left if not _is_finished(piece, leases)]:
        wait(leases.expiry_s / BEATS)


def _is_finished(piece: Piece, leases: Leases) -> bool:
    if piece.is_recorded():
        return True
    lease = leases.take(piece.name)
    if lease is None:
        return leases.is_done(piece.name)
    with leases.hold(lease):
        piece.make(int(lease.suffix[1:]))
    return True


def run_shard(plan: Plan, contenders: Sequence[Contender], compiled: Sequence[Contender]) -> None:
    """Makes this worker's own share first, then what the others have not begun or have left behind. Returns when all
    images are timed and made. A later run measures them."""
    leases = Leases(plan.leases, plan.lease_s)
    if plan.num_timed:
        _time_shared(plan, [*contenders, *compiled], leases)
    if plan.makes_batches:
        for contender in contenders:
            contender.read("images")
        groups = [group for share in plan.shares(plan.batch) for group in groups_of(share, plan.batch_size)]
        finish([_group_piece(one, group) for group in groups for one in contenders], leases)


def _group_piece(contender: Contender, group: Batch) -> Piece:
    name = image_key("images", contender.keys["images"], group)
    return Piece(name, partial(contender.has_made, group), lambda begun: contender.make_group(group))


def _time_shared(plan: Plan, contenders: Sequence[Contender], leases: Leases) -> None:
    """Times the images that no other worker times, and again those of this worker that were disturbed."""
    batch, timed = plan.timed, set[tuple[str, int]]()
    shares = plan.shares(batch)
    finish([piece for share in shares for piece in timing_pieces(contenders, share, batch, timed)], leases)
    own = set(zip(shares[0].prompts, shares[0].copies, strict=True))

    def is_mine(image: tuple[str, int, int]) -> bool:
        name = image[:2]
        return name in timed or (name in own and all(one.has_timed(*name) for one in contenders))

    kept = list(filter(is_mine, zip(*batch, strict=True)))
    if kept:
        retime(contenders, Batch(*(list(values) for values in zip(*kept, strict=True))), plan.max_retimed)


def timing_pieces(
    contenders: Sequence[Contender], share: Batch, batch: Batch, timed: set[tuple[str, int]]
) -> Iterator[Piece]:
    """One piece per image of a share: one worker times plain decoding and the method in turn, because their ratio
    counts. batch: all images; its first one warms up; timed: collects the images that this worker has timed."""

    def has(prompt: str, copy: int) -> bool:
        return all(one.has_timed(prompt, copy) for one in contenders)

    def make(number: int, image: tuple[str, int, int], begun: int) -> None:
        if not timed:
            warm_up(contenders, batch)
        # earlier workers may have left timings of one side only, which a later run reads: these must outrank them
        first = max(begun, first_valid_timing(contenders, *image[:2]))
        for contender in alternating(number, contenders):
            contender.time(*image, first)
        timed.add(image[:2])

    for number, image in enumerate(zip(*share, strict=True)):
        name = image_key("speed", [one.keys["speed"] for one in contenders], image)
        yield Piece(name, partial(has, *image[:2]), partial(make, number, image))
