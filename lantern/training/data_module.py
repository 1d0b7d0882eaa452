"""Training batches depend only on (seed, epoch) and random numbers only on (seed, step), so that a resumed run equals
an uninterrupted one. Checkpoints save only the epoch and the position in it."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, Subset

from lantern.data.splits import Splits
from lantern.errors import LanternError, check_least


class SeededBatches(Sampler[list[int]]):
    """Index batches of one epoch; iter() continues from (epoch, position). Any number of processes share a batch."""

    def __init__(self, length: int, batch_size: int, seed: int, rank: int = 0, world_size: int = 1) -> None:
        """batch_size: over all processes; this process takes every world_size-th item, starting at `rank`."""
        self.num_batches = length // batch_size
        if self.num_batches == 0:
            raise LanternError(f"{length} training items do not fill a batch; lower batches.batch_size={batch_size}")
        if batch_size % world_size:
            raise LanternError(f"batches.batch_size={batch_size} is no multiple of {world_size} processes; give one")
        self.length, self.batch_size, self.seed = length, batch_size // world_size, seed
        self.rank, self.world_size = rank, world_size
        self.epoch = self.position = 0

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        if self.position >= self.num_batches:
            self.epoch, self.position = self.epoch + 1, 0
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + self.epoch) % 2**63)
        order = torch.randperm(self.length, generator=generator)[self.rank :: self.world_size]
        while self.position < self.num_batches:
            start = self.position * self.batch_size
            self.position += 1
            yield order[start : start + self.batch_size].tolist()


class ResumableLoader(DataLoader):
    """A DataLoader without worker processes whose position Lightning stores in checkpoints."""

    def __init__(self, dataset: Sequence[dict[str, Any]], batches: SeededBatches) -> None:
        super().__init__(dataset, batch_sampler=batches)
        self.batches = batches

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.batches.epoch, "position": self.batches.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.batches.epoch, self.batches.position = state["epoch"], state["position"]


def spaced(length: int, count: int) -> list[int]:
    """`count` evenly spaced indices below `length`; all of them if there are fewer."""
    return [i * length // count for i in range(count)] if count < length else list(range(length))


class TrainingData(pl.LightningDataModule):
    """Train and validation batches of any data set (data/splits.py)."""

    def __init__(
        self, splits: Splits, batch_size: int, seed: int, validation_batch_size: int | None = None,
        num_images: int | None = None, unseen: Any = None,
    ) -> None:  # fmt: skip
        """batch_size: of a training step, over all processes; num_images: train on so many, evenly spaced, as the first
        may be of one class; unseen: TokenTable of held-out images of the training's kind, where validation's differ."""
        super().__init__()
        check_least("batches", 1, batch_size=batch_size, validation_batch_size=validation_batch_size)
        check_least("batches", 1, num_images=num_images)
        self.splits, self.batch_size, self.seed, self.num_images = splits, batch_size, seed, num_images
        self.validation_batch_size, self.unseen = validation_batch_size or batch_size, unseen
        self._loader: ResumableLoader | None = None
        self._resumed: dict[str, int] = {}

    def train_dataloader(self) -> ResumableLoader:
        items = self._training()
        rank, world_size = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        batches = SeededBatches(len(items), self.batch_size, self.seed, rank, world_size)
        self._loader = ResumableLoader(items, batches)
        if self._resumed:
            self._loader.load_state_dict(self._resumed)
        return self._loader

    @property
    def told_of_part(self) -> str:
        """How many images of the data set are trained on, where these are not all."""
        items = getattr(self._loader, "dataset", [])
        of = items.dataset if isinstance(items, Subset) else items
        return f" on {len(items):,} of {of.whole:,} images" if len(items) < getattr(of, "whole", 0) else ""

    def _training(self) -> Sequence:
        items = self.splits.split("train")
        return items if self.num_images is None else Subset(items, spaced(len(items), self.num_images))

    def seen_and_unseen(self, count: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """`count` evenly spaced items of the training, and as many held-out ones, fewer where there are fewer."""
        seen, validation = self._training(), self.splits.split("validation")
        chosen = [seen[i] for i in spaced(len(seen), count)]
        if self.unseen is not None:
            return chosen, self.unseen.few("validation", count)
        return chosen, [validation[i] for i in spaced(len(validation), count)]

    def state_dict(self) -> dict[str, int]:
        """The loader's position. Lightning keeps a copy too, but ignores that copy if a run without max_steps was
        resumed earlier at the end of an epoch."""
        return self._loader.state_dict() if self._loader else {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._resumed = state

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.splits.split("validation"), batch_size=self.validation_batch_size)


def step_generator(seed: int, step: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for one step: resuming needs no generator state. Streams differ between steps and seeds."""
    return torch.Generator(device).manual_seed((seed * 0x9E3779B97F4A7C15 + step * 0xC2B2AE3D27D4EB4F) % 2**63)


def batch_uniform(
    count: int, shape: tuple[int, ...], seed: int, step: int, rank: int, world_size: int, device: torch.device | str
) -> Tensor:
    """[count, *shape] uniform in [0, 1), keyed by (seed, step, image). Image i of a process is number
    i * world_size + rank of the step, so that its numbers do not depend on the number of processes."""
    numbers = (i * world_size + rank for i in range(count))
    step_seeds = step_generator(seed, step)
    base = int(torch.randint(2**31, (), generator=step_seeds))
    return torch.stack([torch.rand(shape, generator=step_generator(base, n, device), device=device) for n in numbers])
