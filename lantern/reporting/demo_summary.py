"""The demo's last screen: what was trained, what is fastest at no price, what relaxing bought and cost."""

from collections.abc import Mapping, Sequence

from lantern.evaluation.rows import Row, is_baseline
from lantern.reporting.common_baseline import keys_of
from lantern.reporting.quality_budget import simultaneous, speed_rank
from lantern.reporting.table import format_value
from lantern.runtime.programs import program_of

TIMED_MORE = "speed.num_prompts=8"


def demo_summary(rows: Sequence[Row], trained: Mapping[str, float], shipped_hash: str, folder: str) -> list[str]:
    """At most ten lines. trained: seconds, overlap and length of the drafter; shipped_hash: of the repository's
    drafter, by which its row is known; folder: of the demo. The fastest is so by speed_rank, with bounds as of the best
    of so many."""
    program = " ".join(program_of("evaluate.py")[1])
    lossless = [row for row in rows if row.get("lossless") and not is_baseline(row)]
    lossy = [row for row in rows if not row.get("lossless") and not is_baseline(row)]
    lines = [
        f"Trained: an EAGLE drafter for {trained['seconds']:.0f} s. Its first token's law overlaps the "
        f"target's by {trained['overlap']:.2f}; simulated, {trained['length']:.2f} drafted tokens are accepted a step."
    ]
    for row in sorted(lossless, key=speed_rank, reverse=True):
        owner = "shipped" if row.get("drafter_hash") == shipped_hash else "trained"
        rank = "Fastest at no price" if row is max(lossless, key=speed_rank) else "Also lossless"
        speed = _speed(row, lossless)
        lines.append(f"{rank}: {row.get('method') or row['drafter']}, {owner} drafter, speed-up {speed}.")
    lines += _relaxed(lossy, lossless)
    lines += [
        f"Look at {folder}/sweep: report.html (with the acceptance map), pareto.png, grid.png, results.csv. Next:",
        f"  {program} +method=refined_jacobi {TIMED_MORE}    # the lossless row with narrower bounds",
        "  python -m lantern    # your prompt, decoded by two methods side by side in a local page",
        f"  {program} +sweep=field    # every method in one table",
    ]
    return lines


def _relaxed(lossy: Sequence[Row], lossless: Sequence[Row]) -> list[str]:
    """The fastest relaxed setting, by its lower bound, and its price."""
    if not lossy:
        return []
    row = max(lossy, key=speed_rank)
    price = [f"output TV {format_value(row, 'output_tv')}"] if row.get("output_tv") is not None else []
    if row.get("frechet_diff") is not None:
        price.append(f"Fréchet distance {_difference(row)} beside plain decoding's")
    found = [
        f"Relaxed: LANTERN δ = {row['delta']:g} on {row['tree']}, speed-up {_speed(row, lossy)}; "
        f"price: {', '.join(price) or 'not judged'}."
    ]
    best = max(lossless, key=speed_rank, default=None)
    if best is not None and speed_rank(best) >= speed_rank(row):
        found.append("Here relaxing bought no speed beyond the lossless method.")
    return found


def _difference(row: Row) -> str:
    """The Fréchet distance less plain decoding's, and its bounds, with two decimals; never "-0.00"."""
    values = [row.get(key) for key in ("frechet_diff", "frechet_diff_low", "frechet_diff_high")]
    value, *bounds = [None if value is None else f"{round(value, 2) + 0.0:.2f}" for value in values]
    return value if None in bounds else f"{value} [{', '.join(bounds)}]"


def _speed(row: Row, ranked: Sequence[Row]) -> str:
    return format_value(row | keys_of(simultaneous(row, "speedup", len(ranked)), "speedup"), "speedup")
