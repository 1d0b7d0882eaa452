"""The input of an evaluation: which images are timed and judged, where they are kept, and what identifies its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lantern.data.prompts import Batch
from lantern.errors import LanternError, check_batch_size, is_whole

MAX_RETIMED = 5  # of an image: a machine that disturbs it more often is too busy to measure on
MAX_IMAGES = 1_000_000


@dataclass(frozen=True)
class Plan:
    """What is made, for whom and where. `num_timed` images are decoded one by one, `num_images` in batches; with both 0
    only the prompts' images are made."""

    prompts: Sequence[str]
    num_timed: int
    num_images: int
    batch_size: int
    seed: int = 0
    max_retimed: int = 0  # timings again of an image whose timing was disturbed
    compiled_baseline: bool = False  # whether plain decoding is timed with torch.compile as well
    shards: int = 1
    shard: int = 0
    folder: Path = Path()  # of the run
    shared: Path | None = None  # of all points of a sweep, which share the images of plain decoding; None: folder
    known: Sequence[Path] = ()  # record files: what they hold is not made again
    fingerprint: str = ""  # of the pipeline's whole configuration
    plain_fingerprint: str = ""  # of what plain decoding is built from
    protocol: Mapping[str, object] = field(default_factory=dict)  # row keys that all rows of a run share
    settings: Mapping[str, object] = field(default_factory=dict)  # row keys of the method's drafter and tree
    notes: Mapping[str, object] = field(default_factory=dict)  # keys of the method's row: its preset, published figures

    def __post_init__(self) -> None:
        for name, size in {"speed.num_prompts": self.num_timed, "quality.num_images": self.num_images}.items():
            if not is_whole(size) or not 0 <= size <= MAX_IMAGES:
                raise LanternError(f"{name}={size}: give 1 to {MAX_IMAGES} images, or 0 to switch the part off")
        if not is_whole(self.seed):
            raise LanternError(f"seed={self.seed} is no whole number; give one")
        if not isinstance(self.compiled_baseline, bool):
            raise LanternError(f"speed.compiled_baseline={self.compiled_baseline} is no switch; give true or false")
        check_batch_size(self.batch_size)
        if not (is_whole(self.shards) and is_whole(self.shard) and 0 <= self.shard < self.shards):
            raise LanternError(f"shard={self.shard} of shards={self.shards}: give 0 <= shard < shards")
        if not (is_whole(self.max_retimed) and 0 <= self.max_retimed <= MAX_RETIMED):
            raise LanternError(f"speed.max_retimed={self.max_retimed}: give 0 … {MAX_RETIMED}")

    @property
    def is_sharded(self) -> bool:
        """A shard makes and times images; a later run that finds the records of all shards measures them."""
        return self.shards > 1

    @property
    def measures(self) -> bool:
        return self.num_timed > 0 or self.num_images > 0

    @property
    def makes_batches(self) -> bool:
        """Whether images are made in batches; else the timed images are shown."""
        return self.num_images > 0 or not self.num_timed

    @cached_property
    def batch(self) -> Batch:
        return Batch.cycle(self.prompts, self._num_shown, self.seed)

    @cached_property
    def timed(self) -> Batch:
        return Batch.cycle(self.prompts, self.num_timed, self.seed)

    @property
    def images_at_once(self) -> int:
        return min(self.batch_size, self._num_shown) if self.makes_batches else 1

    @property
    def _num_shown(self) -> int:
        return self.num_images or self.num_timed or len(self.prompts)

    @property
    def baselines(self) -> Path:
        """Images of plain decoding are kept in its folders, named by a hash of what determines them."""
        return (self.shared or self.folder) / "ar"

    def share(self, batch: Batch) -> Batch:
        """This shard's images: image i belongs to shard i modulo `shards`."""
        return batch.part(slice(self.shard, None, self.shards))
