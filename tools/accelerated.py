"""Time and memory of lantern.accelerate beside a model's own generate, on models of 12 layers of width 768 with random
weights, which say nothing about gains: python -m tools.accelerated [family ...] [--batch 1 4] [--repeats 5]
A line for each family and batch: seconds of both in turns, their ratio's median and range, passes, whether the greedy
ids are equal, and peak memory above what the process had before, each in a process of its own."""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

ROOT = Path(__file__).parents[1]
FAMILIES = ("janus_pro", "emu3", "anole", "glm_image")


def prepared(name: str, batch: int):
    """The model and the arguments of a greedy call for `batch` prompts."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
    import support.as_a_command  # noqa: F401
    import torch
    from support import families, generate_calls, larger_families

    larger_families.write_larger()
    generate_calls.SIDE = families.SIDE
    with TemporaryDirectory() as folder:
        model = generate_calls.make(name, Path(folder))
    given = generate_calls.own_call(name, model)
    tensors = {key: value for key, value in given.items() if isinstance(value, torch.Tensor)}
    repeated = {}
    for key, value in tensors.items():
        each = value.unflatten(0, (2, -1))  # two prompts
        repeated[key] = each.repeat((batch + 1) // 2, *[1] * (each.dim() - 1))[:batch].flatten(0, 1)
    return model, given | repeated


def timed(name: str, batch: int, repeats: int) -> dict:
    import torch

    import lantern

    model, given = prepared(name, batch)
    found = {"own": [], "drafted": []}
    for _ in range(repeats + 1):  # the first warms up
        start = perf_counter()
        own = model.generate(**given)
        found["own"].append(perf_counter() - start)
        if "generate" not in vars(model):
            lantern.accelerate(model)
        accelerated = vars(model).pop("generate")
        start = perf_counter()
        made = accelerated(**given)
        found["drafted"].append(perf_counter() - start)
        equal, steps = torch.equal(own, made), accelerated.statistics.tokens_per_step
    ratios = [a / b for a, b in zip(found["drafted"][1:], found["own"][1:], strict=True)]
    return {
        "family": name, "batch": batch, "equal": equal, "tokens_per_step": round(steps, 2),
        "drafted_over_own": [round(median(ratios), 3), round(min(ratios), 3), round(max(ratios), 3)],
        "own_s": round(median(found["own"][1:]), 3),
    }  # fmt: skip


def peak(name: str, batch: int, is_drafted: bool) -> int:
    """Bytes above those before the call."""
    import lantern

    model, given = prepared(name, batch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if is_drafted:
        lantern.accelerate(model)
    model.generate(**given)
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 4])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peak", choices=("own", "drafted"), help="of this process alone, for the first of each")
    asked = parser.parse_args()
    if asked.peak:
        print(peak(asked.families[0], asked.batch[0], asked.peak == "drafted"))
        return
    for name in asked.families:
        for batch in asked.batch:
            row = timed(name, batch, asked.repeats)
            for kind in ("own", "drafted"):
                command = [sys.executable, "-m", "tools.accelerated", name, "--batch", str(batch), "--peak", kind]
                done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
                row[f"peak_mib_{kind}"] = round(int(done.stdout.split()[-1]) / 2**20, 1)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
