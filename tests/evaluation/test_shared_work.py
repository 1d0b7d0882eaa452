"""Workers that begin at different times, one of them killed, make what one process makes, and nothing twice."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from support.fake_pipeline import FakePipeline
from support.lasting import lasting, records
from support.paths import ROOT, SUPPORT, TESTS
from support.shared_evaluation import ADDED, KILLED, SHARDS, evaluation

from lantern.data.prompts import Batch
from lantern.evaluation.contender import Contender
from lantern.evaluation.leases import timing_pieces
from lantern.evaluation.plan import Plan
from lantern.evaluation.records import RECORDS
from lantern.evaluation.rows import read_rows


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    threads = str(torch.get_num_threads())  # on which timings depend, and with them the records' keys
    command = [sys.executable, str(SUPPORT / "shared_evaluation.py"), str(folder), threads]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{TESTS}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.full
def test_the_workers_that_are_left_finish_the_set(home, tmp_path):
    """Catches images of a dead worker that nobody makes, and other tokens than one process's."""
    whole = [m.row for m in evaluation(tmp_path).run(FakePipeline())]
    tokens = {name: line["tokens"] for name, line in records(tmp_path).items()}
    assert {name: line["tokens"] for name, line in records(home).items()} == tokens
    method = FakePipeline()
    merged = [m.row for m in evaluation(home).run(method)]
    assert method.calls == method.ar_calls == []
    assert lasting(merged) == lasting(whole)


@pytest.mark.full
def test_nothing_that_a_living_worker_made_is_made_twice_and_a_worker_added_midway_helps(home):
    """Of one piece only, the one the killed worker had begun, a part may be there twice."""
    lines = {shard: read_rows(home / str(shard) / RECORDS) for shard in range(SHARDS)}
    made = {
        shard: [(line["key"], line["part"], line["prompt"], line["copy"], line.get("retimed")) for line in own]
        for shard, own in lines.items()
    }
    living = Counter(name for shard in made if shard != KILLED for name in made[shard])
    assert set(living.values()) == {1}
    twice = set(living) & set(made[KILLED])
    assert len(twice) <= 4
    others = {name for shard in made if shard != ADDED for name in made[shard]}
    assert len(set(made[ADDED]) - others) >= 2


def test_a_ratio_is_not_taken_from_the_halves_of_two_workers(tmp_path):
    """Catches plain decoding of a worker that died before the method's turn, paired with the method of another."""

    def contenders(home: str, *known: str) -> list[Contender]:
        """Plain decoding and the method in a worker's folder."""
        files = [tmp_path / shard / RECORDS for shard in known]
        plan, method = Plan("a", 1, 0, 1, folder=tmp_path / home, known=files), FakePipeline()
        return [Contender(one, method, plan) for one in (method.baseline(), method)]

    image = ("a", 0, 7)
    contenders("3")[0].time(*image)  # then it died, and no other worker reads its file
    batch = Batch(*([part] for part in image))
    next(timing_pieces(contenders("1"), batch, batch, set())).make(1)
    assert [one.find("speed", "a", 0)["retimed"] for one in contenders("all", "1", "3")] == [1, 1]
