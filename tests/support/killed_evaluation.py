"""An evaluation on a stand-in pipeline, slow enough to be killed: python killed_evaluation.py <folder>."""

import sys
import time
from pathlib import Path

from support.evaluations import evaluation
from support.fake_pipeline import Brightness, FakePipeline

from lantern.reporting.publish import write_measurements


class Slow(FakePipeline):
    def generate(self, prompts, seeds, batch_size):
        time.sleep(0.1)
        return super().generate(prompts, seeds, batch_size)

    def baseline(self):
        return Slow("none", None, 1.0, self.ar_calls, target=self.target)


def evaluate(folder: Path, home: Path, shards: int = 1, shard: int = 0, pipeline=None, images: int = 10) -> list:
    """home: the folder whose records are known; folder: where this run writes."""
    settings = {"shards": shards, "shard": shard, "parts": {"metrics": {"brightness": Brightness()}}}
    asked = evaluation(folder, ["a", "b", "c"], 6, images, 4, sweep=home, **settings)
    measured = asked.run(pipeline or Slow())
    write_measurements(folder, measured) if measured else None
    return measured


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print("begun", flush=True)
    evaluate(folder, folder)
