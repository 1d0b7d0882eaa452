"""One side of an evaluation, plain decoding or the method: decodes and times images, each recorded before the next one
begins; recorded images are not made again. speed.py computes the figures from these records."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from lantern.data.image_sets import Images
from lantern.data.prompts import Batch
from lantern.evaluation.progress import EvaluationBar
from lantern.evaluation.records import RECORDS, Name, lines_of, name_of, read_records, timings_before, unpack
from lantern.evaluation.request import Request
from lantern.evaluation.rows import Row, RowIdentity, append_rows, is_baseline, run_name, setting_id
from lantern.evaluation.run_folder import EvaluationFolder
from lantern.identity import decoding_hashes, image_key
from lantern.pipeline import Pipeline
from lantern.runtime.cores import CpuContention
from lantern.runtime.files import lock, unlinked
from lantern.runtime.hardware import gpu_sharers
from lantern.runtime.memory import check_main_memory
from lantern.types import Generation, Target

BATCHES = 4  # decoded together, and so lost together
BUSY_CORES = 0.25  # used by other processes, above which an image is timed again
KEPT_PIXELS = 2 << 30  # bytes of a side's images, above which they are decoded anew for each metric
DECODED = 4096  # tokens made into images at once, such as four images of 512 px
ON_RECORD = "start the run again in its folder on a machine with more: nothing is decoded twice; or give fewer images"
Item = TypeVar("Item")
Result = TypeVar("Result")


class Made(NamedTuple):
    """What was decoded in this process and not read from the record."""

    prompts: list[str]
    seeds: list[int]
    generation: Generation


class Side:
    """A pipeline with the records of its images in two parts: "speed", timed one by one, and "images", made in batches.
    Equal keys of a part mean equal tokens. Images of plain decoding are shared by the points of a sweep."""

    def __init__(
        self, pipeline: Pipeline, method: Pipeline, request: Request, run: EvaluationFolder, identity: RowIdentity,
        bar: EvaluationBar,
    ) -> None:  # fmt: skip
        """method: the pipeline that is evaluated, on either side."""
        self.pipeline, self.request, self.run, self.bar = pipeline, request, run, bar
        described, fingerprint = dict(pipeline.describe()), identity.plain_fingerprint
        if not is_baseline(described):
            described, fingerprint = described | dict(identity.settings), identity.fingerprint
        self.row_keys: Row = described | {"seed": request.seed, "batch_size": request.batch_size, **identity.protocol}
        self.row_keys |= {"num_images": request.num_images, "fingerprint": fingerprint}
        self.row_keys["compile"] = pipeline.target.compiles
        is_method = pipeline is method
        self.notes = identity.notes if is_method else {}

        target, weight = pipeline.target, pipeline.target.embed_weight
        weights = *decoding_hashes(target).values(), str(weight.dtype), weight.device.type, target.compiles
        decoding = (described, weights, request.seed, fingerprint)
        machine = identity.protocol.get("device"), torch.get_num_threads()  # a requeued job may go on elsewhere
        self.keys = {
            "speed": image_key("speed", decoding, method.describe(), identity.fingerprint, *machine),
            "images": image_key("images", decoding, request.batch_size),
        }
        self.name = "method" if is_method else "plain" if pipeline.target is method.target else "compiled"
        self._is_shared = not is_method and not request.is_sharded
        home = run.baselines / self.keys["images"] if self._is_shared else run.path
        self.folder = run.path / "images" if is_method else home  # of the pictures
        self._files = {"speed": run.path / RECORDS, "images": home / RECORDS}
        batch = request.batch
        names = zip(batch.prompts, batch.copies, batch.file_names, strict=True)
        self._pictures = {(prompt, copy): self.folder / name for prompt, copy, name in names}
        self._lines: dict[Name, Row] = {}
        self._tokens: dict[Name, Tensor] = {}  # of the images made in this process
        self.read("speed")

    def read(self, part: str) -> None:
        """Reads the recorded lines of a part. Of several lines of an image the one timed last counts."""
        files = dict.fromkeys([*self.run.known, self._files[part]])
        lines = [line for file in files if file.is_file() for line in read_records(file)]
        lines = sorted((line for line in lines if line.get("key") == self.keys[part]), key=timings_before)
        # a line may come from a setting that differs only in its number of images
        self._lines |= {name_of(line): self._of_this_setting(line, part) for line in lines}

    def find(self, part: str, prompt: str, copy: int) -> Row | None:
        return self._lines.get((part, prompt, copy))

    def lines(self, part: str, batch: Batch) -> list[Row]:
        """The lines of a batch, in its order; those of another shard's images are left out."""
        found = [self.find(part, prompt, copy) for prompt, copy in zip(batch.prompts, batch.copies, strict=True)]
        return [line for line in found if line is not None]

    def tokens(self, lines: Sequence[Row]) -> Tensor:
        """Tokens [N, L, ...] of the images of lines: as decoded, or unpacked where a line was read from a file."""
        known = [(self._tokens.get(name_of(line)), line["codes"]) for line in lines]
        return torch.stack([unpack(codes) if own is None else own for own, codes in known])

    def time(self, prompt: str, copy: int, seed: int, before: int = 0) -> Made:
        """Decodes one image alone, after `before` timings; records its times and what other processes did."""
        others = CpuContention()
        started = perf_counter()
        generation = self.pipeline.generate([prompt], [seed], 1)
        decode_images(self.pipeline.target, generation.tokens)
        seconds = {"latency_s": generation.latency_s, "end_to_end_s": perf_counter() - started}
        used, sharers = others.cores_beside(generation.tokens), gpu_sharers(generation.tokens.device)
        timed = {**seconds, "retimed": before, "other_cores": used, "gpu_sharers": sharers}
        self.add(lines_of(generation, "speed", [(prompt, copy, seed)], **timed), generation.tokens)
        self.bar.add(("again" if before else "speed", self.name))
        return Made([prompt], [seed], generation)

    def make(self, batch: Batch) -> Iterator[Made]:
        """Makes the missing images in groups, a few batches each, so that waiting prompts take the rows of finished
        images. An incomplete group is made again as a whole, since in low precision an image's rounding depends on its
        batch. The record of shared images is read under its lock: another point may have made them meanwhile."""
        size = BATCHES * self.request.batch_size
        with self._lock_images():
            self.read("images")
            for start in range(0, len(batch.prompts), size):
                group = batch.part(slice(start, start + size))
                is_missing = len(self.lines("images", group)) < len(group.prompts)
                if is_missing:
                    generation = self.pipeline.generate(group.prompts, group.seeds, self.request.batch_size)
                    self.add(lines_of(generation, "images", list(zip(*group, strict=True))), generation.tokens)
                self.bar.add(("images", self.name), len(group.prompts), is_missing)
                if is_missing:
                    yield Made(group.prompts, group.seeds, generation)

    def add(self, lines: Sequence[Row], tokens: Tensor) -> None:
        """Appends the lines of images with tokens [N, L, ...]; they are on disk when this returns."""
        part = lines[0]["part"]
        lines = [self._of_this_setting(line, part) for line in lines]
        append_rows(self._files[part], lines)
        names = [name_of(line) for line in lines]
        self._lines |= dict(zip(names, lines, strict=True))
        self._tokens |= dict(zip(names, tokens.cpu(), strict=True))

    def _of_this_setting(self, line: Row, part: str) -> Row:
        picture = self._pictures.get((line["prompt"], line["copy"]))
        image = None if picture is None else os.path.relpath(picture, self._files[part].parent)
        names = {"key": self.keys[part], "setting": setting_id(self.row_keys), "method": run_name(self.row_keys)}
        return {**names, **line, **names, "image": image}

    @contextmanager
    def _lock_images(self) -> Iterator[None]:
        """Waits until no other process makes the same shared images; the system releases the lock of one that ends."""
        if not self._is_shared:
            yield
            return
        path = self._files["images"].parent / "lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", opener=unlinked) as file:
            lock(file)  # where it has no effect, two points may make the same images
            yield


def time_in_turn(sides: Sequence[Side], batch: Batch, most: int) -> list[list[Made]]:
    """Times every image with every side, in alternating order, behind a warm-up; then again while its last timings are
    disturbed, at most `most` times. The rule is fixed in advance and ignores speed-ups; the records hold every timing.
    Returns what was decoded, by side, each image once."""
    first: list[list[Made]] | None = None
    while True:
        images = [(image, [one.find("speed", *image[:2]) for one in sides]) for image in zip(*batch, strict=True)]
        due = [(*image, timing) for image, lines in images if (timing := due_timing(lines, most)) is not None]
        if first is None:
            for one in sides:
                one.bar.expect(("speed", one.name), len(images))
                one.bar.add(("speed", one.name), len(images) - sum(timing == 0 for *_, timing in due), False)
        if not due:
            return first or [[] for _ in sides]
        if first is None:
            warm_up(sides, batch)
        timed = call_in_turn([one.time for one in sides], _foreseeing(sides, due, len(images), most))
        first = first or timed


def _foreseeing(sides: Sequence[Side], due: Sequence[tuple], images: int, most: int) -> Iterator[tuple]:
    """The images due. Between them the bar learns how many timings again are expected: of the images to come as large a
    share as of those before; before any, that of all `images` in the last round or point."""
    disturbed, before = 0, min(1.0, sides[0].bar.left["again", sides[0].name] / images)
    for number, (*image, timing) in enumerate(due):
        left, share = len(due) - number, (disturbed + before) / (number + 1)
        again = (left * share + disturbed) * sum(share**further for further in range(most - timing))
        for one in sides:
            one.bar.expect(("again", one.name), again + left * (timing > 0))
        yield *image, timing
        disturbed += due_timing([one.find("speed", *image[:2]) for one in sides], most) is not None


def due_timing(lines: Sequence[Row | None], most: int) -> int | None:
    """How many timings of an image precede the one that is due, of the sides' last ones; None where none is. All sides
    time it again where only some have before the process ended: a ratio needs both times from the same minute."""
    counts = [timings_before(line) for line in lines if line]
    if not counts:
        return 0
    is_cut_short = len(counts) < len(lines) or min(counts) < max(counts)
    return max(counts) + 1 if is_cut_short or (max(counts) < most and is_disturbed(lines)) else None


def warm_up(sides: Sequence[Side], batch: Batch) -> None:
    """Each side decodes one unrecorded image. Plain decoding, the first side, comes last: the method's
    larger cache moves its recorded passes."""
    for side in (*sides[1:], sides[0]):
        generation = side.pipeline.generate(batch.prompts[:1], batch.seeds[:1], 1)
        decode_images(side.pipeline.target, generation.tokens)
        side.bar.add(("warm-up", side.name))


def is_disturbed(lines: Sequence[Row | None]) -> bool:
    """lines: an image's timings. The measured times are ignored: a method's times differ by image, so slow ones could
    only be detected for plain decoding, and timing those again would lower every speed-up."""
    return any((line["other_cores"] or 0.0) > BUSY_CORES for line in lines if line)


def call_in_turn(calls: Sequence[Callable[..., Result]], items: Iterable[Sequence]) -> list[list[Result]]:
    """Makes every call on every item's arguments, in alternating order. Returns the results by call."""
    results: list[list[Result]] = [[] for _ in calls]
    for number, item in enumerate(items):
        for index in alternating(number, range(len(calls))):
            results[index].append(calls[index](*item))
    return results


def alternating(number: int, parts: Sequence[Item]) -> Sequence[Item]:
    """The parts in order for an even number, else reversed: a machine that slows down then affects all parts alike."""
    return parts if number % 2 == 0 else parts[::-1]


def images_of(target: Target, tokens: Tensor) -> Images:
    """tokens [N, L] -> their images: a tensor if it fits in KEPT_PIXELS, otherwise decoded whenever they are judged."""
    size = len(tokens) * decode_images(target, tokens[:1]).nbytes
    return decode_images(target, tokens) if size <= KEPT_PIXELS else DecodedImages(target, tokens)


class DecodedImages:
    """Images whose tokens [N, L] are kept and not their pixels."""

    def __init__(self, target: Target, tokens: Tensor) -> None:
        self.target, self.tokens = target, tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, which: slice) -> Tensor:
        return decode_images(self.target, self.tokens[which])


def decode_images(target: Target, tokens: Tensor, remedy: str = ON_RECORD) -> Tensor:
    """tokens [N, L] -> images [N, 3, H, W] in [0, 1], float32, on the CPU, a few at once, since an image decoder's
    activations are larger than the caches of decoding."""
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
