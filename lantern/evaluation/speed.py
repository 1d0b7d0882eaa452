"""Speed figures of result rows, computed from the lines of prompts.jsonl, which sides.py measures."""

from collections.abc import Sequence

import torch

from lantern.evaluation.records import timings_before
from lantern.evaluation.rows import Row
from lantern.metrics.intervals import total_ratio
from lantern.types import per

WIDE = 0.1  # an interval of the speed-up is wide above this share of it
DISTURBED = 0.1  # cores used by other processes on average over a row's timings, above which it has a warning
PARTS = ("draft_ms", "drafter_forward_ms", "verify_ms", "accept_ms", "head_ms", "overhead")  # of a round
RATIOS = {"latency_s": "speedup", "end_to_end_s": "end_to_end_speedup"}


def costs(lines: Sequence[Row], device: torch.device) -> Row:
    """Forwards and judged nodes per image after its prefill, mean milliseconds of a round and of its parts, and the
    overhead: the share of a round outside target and drafter forwards. Accepting includes the cache commit, bookkeeping
    and a head that verification runs (head_ms); drafting includes tree growth. Parts are timed on the host, which is
    meaningless if the device runs asynchronously: then only the whole round has a time."""

    def total(name: str) -> float:
        return sum(line.get(name, 0.0) for line in lines)

    counts = {"target_forwards": "steps", "drafter_forwards": "drafter_forwards", "target_nodes": "nodes"}
    values = {key: per(total(name), len(lines)) for key, name in counts.items()}
    spent = {name: total(name) for name in ("draft_ms", "drafter_forward_ms", "verify_ms", "accept_ms")}
    values |= {name: per(ms, total("rounds")) for name, ms in spent.items()}
    if head := total("head_ms"):
        values["head_ms"] = per(head, total("rounds"))
    others = spent["draft_ms"] - spent["drafter_forward_ms"] + spent["accept_ms"] - head
    whole = spent["draft_ms"] + spent["verify_ms"] + spent["accept_ms"]
    values |= {"overhead": per(others, whole), "round_ms": per(whole, total("rounds"))}
    return values if device.type == "cpu" else values | {key: None for key in PARTS if key in values}


def tokens_per_step(lines: Sequence[Row], num_tokens: int) -> float | None:
    """Image tokens committed per target forward, bonus token included, prefill left out; a ratio of sums. None where
    nothing was decoded after the prefill."""
    return per((num_tokens - 1) * len(lines), sum(line["steps"] for line in lines))


def speed(timed: Sequence[Row], ar: Sequence[Row]) -> Row:
    """Latencies to tokens and, with image decoder, end to end; speed-ups over AR on the same prompts, with bounds."""
    values: Row = {}
    for seconds, name in RATIOS.items():
        own, plain = ([line[seconds] for line in lines] for lines in (timed, ar))
        values |= {seconds: sum(own) / len(own), **total_ratio(plain, own).keys(name)}
    values["baseline_latency_s"] = sum(line["latency_s"] for line in ar) / len(ar)
    keys, lines = ("other_cores", "gpu_sharers"), (*timed, *ar)
    others, sharers = ([line[key] for line in lines if line.get(key) is not None] for key in keys)
    return values | {
        "num_timed": len(timed), "retimed": sum(timings_before(line) > 0 for line in timed),
        "other_cores": sum(others) / len(others) if others else None, "gpu_sharers": max(sharers, default=None),
    }  # fmt: skip


def speed_warnings(row: Row) -> list[str]:
    """Sentences for readers of the speed figures: disturbed timings, wide intervals, unrecorded passes."""
    found = []
    if (row.get("other_cores") or 0) > DISTURBED:
        found.append(f"other processes kept {row['other_cores']:.1f} cores busy while images were timed")
    if row.get("gpu_sharers"):
        found.append(f"other processes, {row['gpu_sharers']} at most, were on the same GPU while images were timed")
    if row.get("speedup") is not None and not row["speedup_high"] - row["speedup_low"] <= WIDE * row["speedup"]:
        wide = f"the speed-up's bounds are more than {WIDE:.0%} apart after {row['num_timed']} prompts"
        told = wide if row["num_timed"] > 1 else "the speed-up of a single prompt has no bounds"
        found.append(f"{told}; time more with speed.num_prompts")
    if row.get("cuda_graphs") is False:
        found.append("some passes could not be recorded as CUDA graphs and were launched kernel by kernel")
    return found
