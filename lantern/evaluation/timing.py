"""Decodes images and times them, one by one or batch by batch, each recorded before the next is begun; what is on
record is not made again. Figures are made of these records by speed.py."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple, Protocol, TypeVar

from torch import Tensor

from lantern.data.prompts import Batch
from lantern.evaluation.records import Ledger, lines_of, timings_before
from lantern.evaluation.rows import Row
from lantern.runtime.cores import CpuContention
from lantern.runtime.memory import check_main_memory
from lantern.types import Generation, Target

BATCHES = 4  # decoded together, and so lost together
ON_RECORD = "start the run again in its folder on a machine with more: nothing is decoded twice; or give fewer images"
DECODED = 4096  # tokens made into images at once, such as four images of 512 px
Item = TypeVar("Item")
Result = TypeVar("Result")
Decode = Callable[[Sequence[str], Sequence[int], int], Generation]
Finish = Callable[[Generation], object]  # from tokens to images


class Made(NamedTuple):
    """What was decoded in this process and not read from the record."""

    prompts: list[str]
    generation: Generation


class ImageCount(Protocol):
    """Is told how many images a point takes and which it has, such as for a progress bar."""

    def expect(self, timed: int, made: int, shared: int) -> None: ...  # shared: made ones that other points reuse
    def add(self, part: str, number: int, is_new: bool) -> None: ...  # part as in the record; else found there


class Uncounted:
    """Counts nothing: an evaluation prints nothing by itself."""

    def expect(self, timed: int, made: int, shared: int) -> None:
        """Does nothing."""

    def add(self, part: str, number: int, is_new: bool) -> None:
        """Does nothing."""


@dataclass(frozen=True)
class Maker:
    """A way of decoding and the record of what it made."""

    decode: Decode
    finish: Finish
    ledger: Ledger
    count: ImageCount = field(default_factory=Uncounted)

    def warm_up(self, prompt: str, seed: int) -> None:
        """One image, unrecorded."""
        self.finish(self.decode([prompt], [seed], 1))

    def has_timed(self, prompt: str, copy: int, before: int = 0) -> bool:
        """Whether a timing of an image is on record that followed `before` others."""
        line = self.ledger.find("speed", prompt, copy)
        return line is not None and timings_before(line) >= before

    def time(self, prompt: str, copy: int, seed: int, before: int = 0) -> Made | None:
        """One image alone, recorded with its token time, its end-to-end time and the CPU use of other processes, in
        place of `before` earlier timings; None if it is on record."""
        if self.has_timed(prompt, copy, before):
            return None
        others = CpuContention()
        started = perf_counter()
        generation = self.decode([prompt], [seed], 1)
        self.finish(generation)
        timed = {"latency_s": generation.latency_s, "end_to_end_s": perf_counter() - started, "retimed": before}
        lines = lines_of(
            generation, "speed", [(prompt, copy, seed)], **timed, other_cores=others.cores_beside(generation.tokens)
        )
        self.ledger.add(lines, generation.tokens)
        return Made([prompt], generation)

    def time_counted(self, prompt: str, copy: int, seed: int, before: int) -> Made | None:
        """time, of an image that the plan counts: not one that is disturbed and timed again."""
        made = self.time(prompt, copy, seed, before)
        self.count.add("speed", 1, made is not None)
        return made


def time_in_turn(makers: Sequence[Maker], batch: Batch) -> list[list[Made]]:
    """Times every image of the batch with every maker, in alternating order, after a warm-up if any timing is missing.
    Returns what was decoded, by maker."""
    images = [(*image, timings_lost(makers, *image[:2])) for image in zip(*batch, strict=True)]
    if any(not maker.has_timed(prompt, copy, lost) for maker in makers for prompt, copy, _, lost in images):
        warm_up(makers, batch)
    made = call_in_turn([maker.time_counted for maker in makers], images)
    return [[one for one in own if one is not None] for own in made]


def timings_lost(makers: Sequence[Maker], prompt: str, copy: int) -> int:
    """How many timings of an image do not count since only some of the makers had their turn before their process
    ended: a ratio of times takes both from one minute, so that all makers time it again."""
    lines = [maker.ledger.find("speed", prompt, copy) for maker in makers]
    return 0 if all(lines) else max((timings_before(line) + 1 for line in lines if line), default=0)


def warm_up(makers: Sequence[Maker], batch: Batch) -> None:
    """One unrecorded image by each maker. Plain decoding, the first, comes last, and behind the method all others that
    decode plainly: the method's larger cache moves their recorded passes."""
    for maker in (*makers[1:], makers[0]):
        maker.warm_up(batch.prompts[0], batch.seeds[0])


def interleave(
    decoders: Sequence[Callable[[str, int], Generation]], prompts: Sequence[str], seeds: Sequence[int]
) -> list[list[Generation]]:
    """Decodes prompt by prompt with every decoder, in alternating order, after a warm-up. Returns the generations by
    decoder."""
    for decode in decoders:
        decode(prompts[0], seeds[0])
    return call_in_turn(decoders, zip(prompts, seeds, strict=True))


def call_in_turn(calls: Sequence[Callable[..., Result]], items: Iterable[Sequence]) -> list[list[Result]]:
    """Makes every call on every item's arguments, in alternating order. Returns the results by call."""
    results: list[list[Result]] = [[] for _ in calls]
    for number, item in enumerate(items):
        for index in alternating(number, range(len(calls))):
            results[index].append(calls[index](*item))
    return results


def alternating(number: int, parts: Sequence[Item]) -> Sequence[Item]:
    """The parts in order for an even number, else reversed: a machine that becomes slower or faster meanwhile then
    affects the times of all parts alike."""
    return parts if number % 2 == 0 else parts[::-1]


def make_in_batches(
    maker: Maker, batch: Batch, batch_size: int, observe: Callable[[Made], object] = lambda made: None
) -> None:
    """Makes the batch in groups that are the same however often a run is cut short: in low precision an image's
    rounding depends on the batch it is decoded in. A group is a few batches long, so that waiting prompts take the rows
    of finished images. A group with an image missing is made again as a whole. `observe` is called with what was
    decoded, which is not kept."""
    for part in groups_of(batch, batch_size):
        group = list(zip(*part, strict=True))
        if all(maker.ledger.find("images", prompt, copy) for prompt, copy, _ in group):
            maker.count.add("images", len(group), is_new=False)
            continue
        prompts, _, seeds = zip(*group, strict=True)
        generation = maker.decode(list(prompts), list(seeds), batch_size)
        maker.ledger.add(lines_of(generation, "images", group), generation.tokens)
        maker.count.add("images", len(group), is_new=True)
        observe(Made(list(prompts), generation))


def groups_of(batch: Batch, batch_size: int) -> list[Batch]:
    """The images of a batch that are made together."""
    size = BATCHES * batch_size
    starts = range(0, len(batch.prompts), size)
    return [batch.part(slice(start, start + size)) for start in starts]


def recorded(ledger: Ledger, part: str, batch: Batch) -> list[Row]:
    """The records of a batch, in its order; those of another shard's images are left out."""
    found = [ledger.find(part, prompt, copy) for prompt, copy in zip(batch.prompts, batch.copies, strict=True)]
    return [line for line in found if line is not None]


def decode_images(target: Target, tokens: Tensor, remedy: str = ON_RECORD) -> Tensor:
    """tokens [N, L] -> images [N, 3, H, W] in [0, 1], float32, on the CPU, a few at once, since an image decoder's
    activations are larger than the caches of decoding. LanternError with the remedy where they do not fit in memory."""
    device = target.codebook.device  # records hold tokens on the host
    size = max(1, DECODED // tokens.shape[1])
    first = target.decode(tokens[:size].to(device)).float().cpu()
    check_main_memory(len(tokens) * first[:1].nbytes, f"{len(tokens)} images as pixels", remedy)
    images = first.new_empty(len(tokens), *first.shape[1:])
    images[:size] = first
    for start in range(size, len(tokens), size):
        part = slice(start, start + size)
        images[part] = target.decode(tokens[part].to(device)).float().cpu()
    return images
