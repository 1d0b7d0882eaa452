"""Four workers of one evaluation: python shared_evaluation.py <folder> <threads>. They start at different times, the
third one is killed after its first image, and the fourth one is added then."""

import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from support.fake_pipeline import FakePipeline

from lantern.evaluation import contender
from lantern.evaluation.evaluate import Evaluation
from lantern.evaluation.plan import Plan
from lantern.evaluation.records import RECORDS, record_files

PROMPTS = ("a", "b", "c", "d", "e")
SHARDS, KILLED, ADDED, LEASE_S = 4, 2, 3, 5.0
CALLS_BEFORE_ALL_ARE_THERE = 6  # of a worker; two of them warm up


@dataclass
class Gated(FakePipeline):
    """Waits after a few calls until a file tells that all workers are there."""

    gate: Path = Path()

    def generate(self, prompts, seeds, batch_size):
        while len(self.calls) + len(self.ar_calls) >= CALLS_BEFORE_ALL_ARE_THERE and not self.gate.is_file():
            time.sleep(0.01)
        return super().generate(prompts, seeds, batch_size)

    def baseline(self):
        return Gated("none", None, 1.0, self.ar_calls, self.calls, target=self.target, gate=self.gate)


def evaluation(home: Path, shards: int = 1, shard: int = 0) -> Evaluation:
    """Of 40 timed and 120 made images, in groups of four; a worker writes to its own folder below home."""
    contender.BATCHES = 1
    folder = home / str(shard) if shards > 1 else home
    plan = Plan(PROMPTS, 40, 120, 4, shards=shards, shard=shard, lease_s=LEASE_S)
    places = {"folder": folder, "shared": home, "known": record_files(home)}
    return Evaluation(replace(plan, fingerprint="f", **places))


def started(home: Path, shard: int) -> int:
    if child := os.fork():
        return child
    try:
        evaluation(home, SHARDS, shard).run(Gated(gate=home / "gate"))
        os._exit(0)
    finally:
        os._exit(1)


def wait_for_images(home: Path, shard: int) -> None:
    while not (home / str(shard) / RECORDS).is_file():
        time.sleep(0.005)


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[2]))
    home, workers = Path(sys.argv[1]), {}
    for shard in range(SHARDS):
        workers[shard] = started(home, shard)
        wait_for_images(home, shard)
        if shard == KILLED:
            os.kill(workers[shard], signal.SIGKILL)
    (home / "gate").touch()
    ends = {shard: os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for shard, worker in workers.items()}
    sys.exit(ends != {shard: -signal.SIGKILL if shard == KILLED else 0 for shard in range(SHARDS)})
