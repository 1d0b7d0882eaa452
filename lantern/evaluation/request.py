"""What is asked of an evaluation: the prompts, how many images of them are timed and scored, and how."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lantern.data.prompts import Batch
from lantern.errors import LanternError, check_whole

MAX_RETIMED = 5  # of an image: a machine that disturbs it more often is too busy to measure on
MAX_IMAGES = 1_000_000


@dataclass(frozen=True)
class Request:
    """`num_timed` images are decoded one by one, `num_images` in batches; with both 0 one image a prompt."""

    prompts: Sequence[str]
    num_timed: int
    num_images: int
    batch_size: int
    seed: int = 0
    max_retimed: int = 0  # timings again of an image whose timing was disturbed
    compiled_baseline: bool = False  # whether plain decoding is timed with torch.compile as well
    shards: int = 1
    shard: int = 0
    least_images: int = 0  # by which the metrics score, if any are scored

    def __post_init__(self) -> None:
        check_whole("speed", 0, MAX_IMAGES, num_prompts=self.num_timed)
        check_whole("speed", 0, MAX_RETIMED, max_retimed=self.max_retimed)
        check_whole("quality", 0, MAX_IMAGES, num_images=self.num_images)
        if 0 < self.num_images < self.least_images:
            limits = f"{self.least_images} … {MAX_IMAGES}, or 0 for no metrics"
            raise LanternError(f"quality.num_images={self.num_images}: give a whole number, {limits}")
        check_whole("", 1, MAX_IMAGES, shards=self.shards)
        check_whole("", 0, self.shards - 1, shard=self.shard)
        check_whole("", 1, batch_size=self.batch_size)
        check_whole("", seed=self.seed)
        if not isinstance(self.compiled_baseline, bool):
            raise LanternError(f"speed.compiled_baseline={self.compiled_baseline} is no switch; give true or false")

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

    def share(self, batch: Batch) -> Batch:
        """This shard's images: image i belongs to shard i modulo `shards`."""
        return batch.part(slice(self.shard, None, self.shards))
