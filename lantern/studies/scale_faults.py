"""What failures cost on many GPUs, simulated: training stops as a whole and goes on from its last checkpoint; judging
loses one worker's piece, which another one takes when its lease has expired."""

import heapq
import random
from statistics import fmean

HOUR = 3600.0
MTBF_S = 1000 * HOUR  # of one GPU with its share of a machine; a tenth of what large clusters report
CHECKPOINT_S, RESTART_S = 180.0, 300.0  # train.py saves every three minutes; to notice, to start and to load
LEASE_S = 60.0  # lease_s
REPEATS = 200


def training_hours(hours: float, gpus: int) -> float:
    """Mean hours until so many hours of work are done, if any of the GPUs stops them all."""
    return fmean(_train(hours * HOUR, MTBF_S / gpus, random.Random(number)) for number in range(REPEATS)) / HOUR


def _train(work: float, mtbf: float, draws: random.Random) -> float:
    spent = saved = 0.0
    while True:
        until = draws.expovariate(1 / mtbf)
        if until >= work - saved:
            return spent + work - saved
        saved += until // CHECKPOINT_S * CHECKPOINT_S
        spent += until + RESTART_S


def judging_hours(pieces: int, seconds: float, workers: int) -> float:
    """Mean hours until so many pieces of so many seconds are made by workers that share them by leases."""
    return fmean(_judge(pieces, seconds, workers, random.Random(number)) for number in range(REPEATS)) / HOUR


def _judge(pieces: int, seconds: float, workers: int, draws: random.Random) -> float:
    free = [0.0] * workers  # when each worker takes its next piece
    due = [0.0] * pieces  # when each piece can be taken, the earliest first
    end = 0.0
    while due:
        start, possible = heapq.heappop(free), heapq.heappop(due)
        start = max(start, possible)
        until = draws.expovariate(1 / MTBF_S)
        if until >= seconds:
            heapq.heappush(free, start + seconds)
            end = max(end, start + seconds)
        else:
            heapq.heappush(free, start + until + RESTART_S)
            heapq.heappush(due, start + until + LEASE_S)
    return end
