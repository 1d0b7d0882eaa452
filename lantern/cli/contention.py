"""Decoding beside a busy process, by torch's threads and how long they spin: python -m lantern.cli.contention. Takes
six minutes at most; run it on a machine that does nothing else."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter, sleep
from typing import NamedTuple

REPEATS, LIMIT_S = 3, 4.0  # images of each kind and load; an image that takes longer is extrapolated from its rounds
SETTLING_S = 1.0  # from the start of the busy process to the first image
METHODS = {"plain": ["drafter=none", "acceptance=exact"], "window": ["+method=refined_jacobi"]}
LOADS = ("idle", "loaded")
PROMPT = "a red sphere on wood"
BUSY = [sys.executable, "-c", "while True: pass"]


class Arm(NamedTuple):
    """Threads during decoding (one of MODES), and variables that torch reads when it is loaded."""

    name: str
    threads: str
    variables: Mapping[str, str]


ARMS = (
    Arm("default", "fixed", {}),
    Arm("spin 10000", "fixed", {"GOMP_SPINCOUNT": "10000"}),
    Arm("sharing", "sharing", {}),
    Arm("sharing, spin 10000", "sharing", {"GOMP_SPINCOUNT": "10000"}),
)
DTYPES = ("float32", "auto")
MODES = ("fixed", "sharing")
Figures = dict[str, list[float]]  # seconds an image, by method and load


def compare(arms: Sequence[Arm] = ARMS, dtypes: Sequence[str] = DTYPES, settings: Sequence[str] = ()) -> None:
    """Prints a line per arm and dtype. settings: further overrides of the model's configuration."""
    print(
        f"{'dtype':8}  {'arm':19}  " + "  ".join(f"{m} {load:>6}" for m in METHODS for load in LOADS) + "  loaded/idle"
    )
    for dtype in dtypes:
        for arm in arms:
            print(line(dtype, arm.name, _measured(arm, [f"dtype={dtype}", *settings])), flush=True)


def line(dtype: str, name: str, figures: Figures) -> str:
    """Medians in seconds, and the ratios of loaded to idle."""
    seconds = {key: median(found) for key, found in figures.items()}
    shown = "  ".join(f"{seconds[f'{m} {load}']:{len(m) + 7}.2f}" for m in METHODS for load in LOADS)
    ratios = ", ".join(f"{seconds[f'{m} loaded'] / seconds[f'{m} idle']:.1f}" for m in METHODS)
    return f"{dtype:8}  {name:19}  {shown}  {ratios}"


def _measured(arm: Arm, settings: Sequence[str]) -> Figures:
    """In a process of its own, where no variable is left over."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GOMP_", "OMP_", "MKL_"))}
    command = [sys.executable, "-m", "lantern.cli.contention", arm.threads, *settings]
    done = subprocess.run(command, env=kept | arm.variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the arm {arm.name} failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(threads: str, settings: Sequence[str], repeats: int = REPEATS) -> Figures:
    """Seconds of images made in this process, the methods in turn, first alone and then beside a busy process."""
    from lantern.cli.demo_timings import pipeline_of, target_of
    from lantern.runtime.core_sharing import FIXING

    settings = [*settings, "device=cpu"]
    target = target_of(settings)
    if threads == "fixed":  # decoding reads it, torch has started with its own number
        os.environ[FIXING[0]] = str(os.cpu_count())
    pipelines = {name: pipeline_of(target, [*settings, *method]) for name, method in METHODS.items()}
    for pipeline in pipelines.values():
        seconds_of(pipeline)  # warms up
    figures: Figures = {}
    for load in LOADS:
        with _busy() if load == "loaded" else _alone():
            for _ in range(repeats):
                for name, pipeline in pipelines.items():
                    figures.setdefault(f"{name} {load}", []).append(seconds_of(pipeline))
    return figures


def seconds_of(pipeline, limit_s: float = LIMIT_S) -> float:
    """Of an image; after limit_s seconds the rest is estimated from the tokens made so far."""
    started = perf_counter()
    for step in pipeline.steps(PROMPT, 0):
        if (spent := perf_counter() - started) > limit_s:
            return spent * len(step.tokens) / step.committed
    return perf_counter() - started


@contextmanager
def _busy() -> Iterator[None]:
    with subprocess.Popen(BUSY) as process:
        try:
            sleep(SETTLING_S)
            yield
        finally:
            process.kill()


@contextmanager
def _alone() -> Iterator[None]:
    yield


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in MODES:
        print(json.dumps(measure(sys.argv[1], sys.argv[2:])))
    elif sys.argv[1:]:
        print(__doc__)
    else:
        compare()
