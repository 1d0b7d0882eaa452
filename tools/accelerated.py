"""Time and memory of lantern.accelerate beside a model's own generate, on models of 12 layers of width 768 with random
weights, which say nothing about gains: python -m tools.accelerated [family ...] [--batch 1 4] [--repeats 3] [--side 16]
[--dtype bfloat16]
A row for each family and batch, each in a process of its own: seconds of both in turns, their ratio and its range,
codes a pass, whether the greedy ids are equal, peak memory of the own call, how far the accelerated one goes above it,
and the cache that is kept until restore. Then the same by arithmetic for a model of 7B, and a table of the rows."""

import argparse
import json
import resource
import subprocess
import sys
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

ROOT = Path(__file__).parents[1]
FAMILIES = ("janus_pro", "emu3", "anole", "glm_image")
JANUS_7B = {"layers": 30, "width": 4096, "codes": 16384, "image": 576, "prompt": 64}
WINDOW = 15  # of conf/drafter/jacobi.yaml
MIB = 2**20
SIZES = {  # of a tiny body, and what it becomes
    ("hidden_size", 32): 768, ("intermediate_size", 48): 2048, ("num_hidden_layers", 2): 12,
    ("num_attention_heads", 4): 12, ("num_key_value_heads", 2): 12, ("projection_dim", 32): 768,
    ("image_token_embed_dim", 32): 768,
    ("image_size", 8): 16, ("num_image_tokens", 16): 64,
}  # fmt: skip


def grown(config: dict, within: str = "") -> dict:
    made = {}
    for key, value in config.items():
        is_of_vision = within == "vision_config" and key not in ("projection_dim", "image_size", "num_image_tokens")
        made[key] = grown(value, key) if isinstance(value, dict) else value
        if not isinstance(value, dict | list) and not is_of_vision:
            made[key] = SIZES.get((key, value), value)
        if key == "mrope_section":
            made[key] = [4, 6, 6]
    return made


def write_larger(side: int) -> None:
    """Makes the tiny sizes of all families those of 12 layers of width 768, and their images side x side codes."""
    from support import families

    SIZES.update({("image_size", 8): 2 * side, ("num_image_tokens", 16): side * side})
    for geometry in (families.JANUS, families.EMU3, families.CHAMELEON, families.GLM_IMAGE, families.SIMPLEAR):
        sizes = grown(geometry)
        geometry.clear()
        geometry.update(sizes)
    families.SIDE = side


def prepared(name: str, batch: int, side: int, dtype: str):
    """The model and the arguments of a greedy call for `batch` prompts. side: of an image, in codes."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
    import support.as_a_command  # noqa: F401
    import torch
    from support import families, generate_calls

    write_larger(side)
    generate_calls.SIDE = families.SIDE
    with TemporaryDirectory() as folder:
        model = generate_calls.make(name, Path(folder)).to(getattr(torch, dtype))
    given = generate_calls.own_call(name, model)
    tensors = {key: value for key, value in given.items() if isinstance(value, torch.Tensor)}
    repeated = {}
    for key, value in tensors.items():
        each = value.unflatten(0, (2, -1))  # two prompts
        repeated[key] = each.repeat((batch + 1) // 2, *[1] * (each.dim() - 1))[:batch].flatten(0, 1)
    return model, given | repeated


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def row(name: str, batch: int, repeats: int, side: int, dtype: str) -> dict:
    import torch

    import lantern

    model, given = prepared(name, batch, side, dtype)
    found, peaks = {"own": [], "drafted": []}, [peak_mib()]
    for _ in range(repeats + 1):  # the first warms up
        start = perf_counter()
        own = model.generate(**given)
        found["own"].append(perf_counter() - start)
        peaks.append(peak_mib())
        if len(found["own"]) == 1:
            lantern.accelerate(model)
            accelerated = vars(model).pop("generate")
        start = perf_counter()
        made = accelerated(**given)
        found["drafted"].append(perf_counter() - start)
        peaks.append(peak_mib())
        equal, steps = torch.equal(own, made), accelerated.statistics.tokens_per_step
        times = f"{found['own'][-1]:.1f} s, accelerated {found['drafted'][-1]:.1f} s"
        print(f"{name}, batch {batch}, call {len(found['own'])} of {repeats + 1}: own {times}", file=sys.stderr)
    ratios = [a / b for a, b in zip(found["drafted"][1:], found["own"][1:], strict=True)]
    return {
        "family": name, "batch": batch, "side": side, "dtype": dtype, "equal": equal,
        "tokens_per_step": round(steps, 2),
        "drafted_over_own": [round(median(ratios), 3), round(min(ratios), 3), round(max(ratios), 3)],
        "own_s": round(median(found["own"][1:]), 3), "own_peak_mib": round(peaks[1] - peaks[0], 1),
        "above_own_peak_mib": round(peaks[2] - peaks[1], 1),
        "kept_mib": round(accelerated._last[1].target.held_bytes / MIB, 1),
    }  # fmt: skip


def estimate(batch: int, layers: int, width: int, codes: int, image: int, prompt: int) -> dict:
    """Of Janus-Pro-7B in bfloat16, guided. The own call's cache is as long but for the window, and freed at its end."""
    place = 2 * layers * 2 * width * 2  # bytes: keys and values of both rows
    window, table = batch * WINDOW * place, codes * width * 2
    kept = batch * (prompt + image) * place + window
    return {
        "estimate": "Janus-Pro-7B", "batch": batch, "above_own_peak_mib": round((window + table) / MIB),
        "kept_mib": round((kept + table) / MIB),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 4])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", type=int, default=16, help="of an image, in codes")
    parser.add_argument("--dtype", default="float32", help="of the model's weights")
    parser.add_argument("--here", action="store_true", help="in this process, the first of each")
    asked = parser.parse_args()
    if asked.here:
        print(json.dumps(row(asked.families[0], asked.batch[0], asked.repeats, asked.side, asked.dtype)), flush=True)
        return
    rows = []
    for name, batch in product(asked.families, asked.batch):
        given = [name, "--batch", str(batch), "--repeats", str(asked.repeats), "--side", str(asked.side)]
        command = [sys.executable, "-m", "tools.accelerated", *given, "--dtype", asked.dtype, "--here"]
        rows.append(json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout))
        print(json.dumps(rows[-1]), flush=True)
    for batch in asked.batch:
        print(json.dumps(estimate(batch, **JANUS_7B)))
    for line in ([*rows[0]], ["---"] * len(rows[0]), *(row.values() for row in rows)):
        print("|", " | ".join(map(str, line)), "|")


if __name__ == "__main__":
    main()
