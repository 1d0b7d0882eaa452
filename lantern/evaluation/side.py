"""One side of an evaluation, plain AR decoding or the method: its pipeline, the keys that identify its row, its images
and its records."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from lantern.data.prompts import Batch
from lantern.evaluation.fingerprint import decoding_hashes
from lantern.evaluation.plan import Folders, Identity, Plan
from lantern.evaluation.records import RECORDS, Ledger, key_of
from lantern.evaluation.rows import Row, is_baseline, run_name, setting_id
from lantern.evaluation.timing import ImageCount, Made, Maker, decode_images, make_in_batches, recorded
from lantern.pipeline import Pipeline
from lantern.runtime.files import lock


class Side:
    """Times and makes the images of its pipeline. Plain AR images are shared by the points of a sweep."""

    def __init__(
        self, pipeline: Pipeline, method: Pipeline, plan: Plan, folders: Folders, identity: Identity, count: ImageCount
    ) -> None:  # method: the pipeline that is evaluated, on either side
        self.pipeline, self._plan, self._known, self._count = pipeline, plan, folders.known, count
        described, is_method = dict(pipeline.describe()), pipeline is method
        if is_baseline(described):
            fingerprint = identity.plain_fingerprint
        else:
            described, fingerprint = described | dict(identity.settings), identity.fingerprint
        self.keys: Row = described | {"seed": plan.seed, "batch_size": plan.batch_size, **identity.protocol}
        self.keys |= {"num_images": plan.num_images, "fingerprint": fingerprint, "compile": pipeline.target.compiles}
        self.notes = identity.notes if is_method else {}

        own = (described, _weights(pipeline), plan.seed, fingerprint)
        self._images_key = key_of("images", own, plan.batch_size)
        is_shared = not is_method and not plan.is_sharded
        self._home = folders.baselines / self._images_key if is_shared else folders.run
        self._lock_file = self._home / "lock" if is_shared else None
        self.images = folders.run / "images" if is_method else self._home
        against = (method.describe(), identity.fingerprint)
        machine = identity.protocol.get("device"), torch.get_num_threads()  # a requeued job may go on elsewhere
        self.timer = self._maker(folders.run, key_of("speed", own, against, *machine))
        self._makers = {"speed": self.timer}

    def _maker(self, home: Path, key: str) -> Maker:
        target, batch = self.pipeline.target, self._plan.batch
        names = zip(batch.prompts, batch.copies, batch.file_names, strict=True)
        files = {(prompt, copy): self.images / name for prompt, copy, name in names}
        common = {"setting": setting_id(self.keys), "method": run_name(self.keys)}
        ledger = Ledger(home / RECORDS, self._known, key, common, files)
        return Maker(
            self.pipeline.generate,
            lambda made: decode_images(target, made.tokens),
            ledger,
            self._count,
        )

    def make(self, batch: Batch, observe: Callable[[Made], object]) -> None:
        """Makes the images that are missing, in batches, each told to `observe`. The record of shared images is read
        under its lock: another point may have made them meanwhile."""
        with _lock(self._lock_file):
            make_in_batches(self.image_maker(), batch, self._plan.batch_size, observe)

    def image_maker(self) -> Maker:
        """What makes the images in batches, with their record as it is now."""
        self._makers["images"] = self._maker(self._home, self._images_key)
        return self._makers["images"]

    def lines(self, part: str, batch: Batch) -> list[Row]:
        """The records of a batch, timed ("speed") or made in batches ("images", after make)."""
        return recorded(self._makers[part].ledger, part, batch)

    def tokens(self, lines: Sequence[Row]) -> Tensor:
        """Records -> tokens [N, L] of their images."""
        return torch.stack([self._makers[line["part"]].ledger.tokens(line) for line in lines])


def _weights(pipeline: Pipeline) -> tuple[object, ...]:
    target = pipeline.target
    weight = target.embed_weight
    return *decoding_hashes(target).values(), str(weight.dtype), weight.device.type, target.compiles


@contextmanager
def _lock(path: Path | None) -> Iterator[None]:
    """Waits until no other process holds the file, which the system releases when its holder ends; None: no lock."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        lock(file)  # where it has no effect, two points may make the same images
        yield
