"""What the record of a setting's images says of its speed: row values from the lines of prompts.jsonl, or from what
records.spent_by says of images that nobody records."""

from collections.abc import Sequence

from lantern.metrics.speed import over_floor, speedup, step_ms
from lantern.results import Row
from lantern.types import Target

WIDE = 0.1  # an interval of the speed-up wider than this share of it says little
DISTURBED = 0.1  # cores that other processes may keep busy
RATIOS = {"latency_s": "speedup", "end_to_end_s": "end_to_end_speedup"}


def costs(lines: Sequence[Row]) -> Row:
    """Forwards and judged nodes an image takes after its prefill, mean milliseconds of the parts of a round, and the
    overhead: the share of a round that is neither a target nor a drafter forward. Accepting includes what it leads to
    in the caches and the books, drafting the growth of trees."""
    totals = {name: sum(line[name] for line in lines) for name in ("steps", "drafter_forwards", "nodes", "rounds")}
    values = {
        "target_forwards": _ratio(totals["steps"], len(lines)),
        "drafter_forwards": _ratio(totals["drafter_forwards"], len(lines)),
        "target_nodes": _ratio(totals["nodes"], len(lines)),
    }
    parts = ("draft_ms", "drafter_forward_ms", "verify_ms", "accept_ms")
    spent = {name: sum(line[name] for line in lines) for name in parts}
    values |= {name: _ratio(ms, totals["rounds"]) for name, ms in spent.items()}
    others = spent["draft_ms"] - spent["drafter_forward_ms"] + spent["accept_ms"]
    return values | {"overhead": _ratio(others, spent["draft_ms"] + spent["verify_ms"] + spent["accept_ms"])}


def tokens_per_step(lines: Sequence[Row], num_tokens: int) -> float | None:
    """Image tokens committed per target forward, bonus token included, prefill left out; sums before the ratio. None
    where nothing was decoded after the prefill."""
    return _ratio((num_tokens - 1) * len(lines), sum(line["steps"] for line in lines))


def speed(target: Target, timed: Sequence[Row], ar: Sequence[Row]) -> Row:
    """Latencies of the tokens alone and of the whole way from text to image, and how many times less than AR's of the
    same prompts, with bounds; AR's step over the machine's floor."""
    values: Row = {}
    for seconds, name in RATIOS.items():
        own, plain = ([line[seconds] for line in lines] for lines in (timed, ar))
        ratio, low, high = speedup(own, plain)
        values |= {seconds: sum(own) / len(own), name: ratio, f"{name}_low": low, f"{name}_high": high}
    values["baseline_latency_s"] = sum(line["latency_s"] for line in ar) / len(ar)
    ar_step_ms = step_ms([line["latency_s"] for line in ar], [line["rounds"] for line in ar])
    others = [line["other_cores"] for line in (*timed, *ar) if line["other_cores"] is not None]
    return values | {
        "ar_over_floor": over_floor(target, ar_step_ms),
        "num_timed": len(timed),
        "other_cores": sum(others) / len(others) if others else None,
    }


def is_wide(row: Row) -> bool:
    """Whether the bounds of the speed-up are too far apart to say much, or there are none."""
    return not row["speedup_high"] - row["speedup_low"] <= WIDE * row["speedup"]


def speed_warnings(row: Row) -> list[str]:
    """What a reader of the speed figures must know."""
    found = []
    if (row.get("other_cores") or 0) > DISTURBED:
        found.append(f"other processes kept {row['other_cores']:.1f} cores busy while images were timed")
    if row.get("speedup") is not None and is_wide(row):
        found.append(
            f"the speed-up's bounds are more than {WIDE:.0%} apart after {row['num_timed']} prompts; time more with "
            f"speed.num_prompts, or allow speed.max_doublings"
        )
    return found


def _ratio(total: float, count: float) -> float | None:
    return total / count if count else None
