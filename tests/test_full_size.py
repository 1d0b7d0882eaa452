"""LlamaGen-B at full size through the command, weights random, in the memory that a laptop has."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from full_size import write_llamagen_b

from lantern.results import read_rows

ROOT = Path(__file__).parents[1]
MEASURED = "import resource, runpy, sys; sys.argv = ['evaluate.py', *sys.argv[1:]]; import evaluate; evaluate.main(); "
PEAK = "print('peak KiB', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"


@pytest.mark.full
def test_llamagen_b_decodes_an_image_within_24_gib(tmp_path):
    """Catches a full-size model that loads only in tests of tiny ones, and weights kept too many times."""
    write_llamagen_b(tmp_path)
    settings = ["model=llamagen_c2i_b", f"model.checkpoint={tmp_path}", f"model.tokenizer.checkpoint={tmp_path}"]
    settings += ["drafter=none", "acceptance=exact", "prompts=[7]", "speed.num_prompts=1", "quality.num_images=0"]
    command = [sys.executable, "-c", MEASURED + PEAK, *settings, f"hydra.run.dir={tmp_path}/run"]
    environment = os.environ | {"WANDB_MODE": "offline"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    (row,) = read_rows(tmp_path / "run" / "results.jsonl")
    assert row["model"] == "llamagen_c2i_b"
    assert row["target_forwards"] is None or row["tokens_per_step"] == 1
    assert int(re.search(r"peak KiB (\d+)", done.stdout)[1]) < 24 * 2**20
