"""Makes the images of a setting and times them, image by image or batch by batch, each recorded before the next is
begun. What is on record is not made again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

from lantern.data.prompts import Batch
from lantern.evaluation.records import Ledger, lines_of
from lantern.evaluation.rows import Row
from lantern.metrics.cpu_contention import CpuContention
from lantern.types import Generation

Decode = Callable[[Sequence[str], Sequence[int], int], Generation]
BATCHES = 4  # decoded together, and so lost together
Finish = Callable[[Generation], object]  # what follows the tokens until the images are there


class Made(NamedTuple):
    """What was decoded in this process and not read from the record."""

    prompts: list[str]
    generation: Generation


@dataclass(frozen=True)
class Maker:
    """A way of decoding and the record of what it made."""

    decode: Decode
    finish: Finish
    ledger: Ledger

    def time(self, prompt: str, copy: int, seed: int) -> Made:
        """One image alone, recorded with its token time, its whole time, and who else was using the processor."""
        others = CpuContention()
        started = perf_counter()
        generation = self.decode([prompt], [seed], 1)
        self.finish(generation)
        timed = {"latency_s": generation.latency_s, "end_to_end_s": perf_counter() - started}
        lines = lines_of(generation, "speed", [(prompt, copy, seed)], **timed, other_cores=others.cores())
        self.ledger.add(lines)
        return Made([prompt], generation)


def shard_of(batch: Batch, shards: int, shard: int) -> Batch:
    """The images whose number is `shard` modulo `shards`."""
    return Batch(*(part[shard::shards] for part in batch))


def time_in_turn(makers: Sequence[Maker], batch: Batch) -> list[list[Made]]:
    """Times every image of the batch with every maker, in an order that alternates, so that a machine that slows down
    or speeds up meanwhile does so for all; makers are warmed up first. Returns what was made now."""
    made: list[list[Made]] = [[] for _ in makers]
    images = list(zip(*batch, strict=True))
    missing = [[m for m in makers if m.ledger.find("speed", prompt, copy) is None] for prompt, copy, _ in images]
    if any(missing):
        for maker in makers:
            maker.finish(maker.decode(batch.prompts[:1], batch.seeds[:1], 1))
    for number, image in enumerate(images):
        for maker in makers if number % 2 == 0 else reversed(makers):
            if maker in missing[number]:
                made[makers.index(maker)].append(maker.time(*image))
    return made


def make_in_batches(maker: Maker, batch: Batch, batch_size: int) -> list[Made]:
    """Makes the batch in groups that are the same however often a run is cut short: in low precision an image's
    rounding depends on its company. A group is a few batches long, so that rows which finish early make way for others.
    One of which an image is missing is made again. Returns what was."""
    made = []
    images = list(zip(*batch, strict=True))
    size = BATCHES * batch_size
    for start in range(0, len(images), size):
        group = images[start : start + size]
        if all(maker.ledger.find("images", prompt, copy) for prompt, copy, _ in group):
            continue
        prompts, _, seeds = zip(*group, strict=True)
        generation = maker.decode(list(prompts), list(seeds), batch_size)
        maker.ledger.add(lines_of(generation, "images", group))
        made.append(Made(list(prompts), generation))
    return made


def recorded(ledger: Ledger, part: str, batch: Batch) -> list[Row]:
    """The lines of a batch, in its order; images that another shard makes are left out."""
    found = [ledger.find(part, prompt, copy) for prompt, copy in zip(batch.prompts, batch.copies, strict=True)]
    return [line for line in found if line is not None]


def interleave(decoders: Sequence[Decode], prompts: Sequence[str], seeds: Sequence[int]) -> list[list[Generation]]:
    """Decodes prompt by prompt with every decoder, in an order that alternates, so that a machine that slows down or
    speeds up meanwhile does so for all. Every decoder is warmed up first. Returns the generations by decoder."""
    for decode in decoders:
        decode(prompts[0], seeds[0])
    kept: list[list[Generation]] = [[] for _ in decoders]
    for i, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
        turns = list(zip(decoders, kept, strict=True))
        for decode, generations in turns if i % 2 == 0 else reversed(turns):
            generations.append(decode(prompt, seed))
    return kept
