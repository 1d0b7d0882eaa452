"""The answer of a sweep: its fastest setting within the budget, on the terminal and in best.json."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lantern.evaluation.rows import Row, encode
from lantern.reporting.common_baseline import is_comparable, speed_key
from lantern.reporting.labels import label_rows, marks
from lantern.reporting.quality_budget import Budget, Choice, speed_rank
from lantern.reporting.table import format_value
from lantern.runtime.files import replace_text


def report_best(folder: Path, rows: Sequence[Row], budget: Budget, best: Choice | None) -> None:
    """Prints the fastest setting within a budget, the fastest lossless one and their speed against every other setting,
    and writes best.json. Does nothing where `best` is None."""
    if best is None:
        return
    labels = dict(zip(map(id, rows), label_rows(rows), strict=True))
    timed = [row for row in rows if marks(row)["law"] == "lossless" and row.get("speedup")]
    lossless = max(timed, key=speed_rank, default=best.row)
    winners = [best.row, *([] if lossless is best.row else [lossless])]
    times = {labels[id(winner)]: _times_as_fast(winner, rows, labels) for winner in winners}
    record = {"budget": asdict(budget), "certain": best.is_certain, "setting": labels[id(best.row)], "row": best.row}
    record |= {"ranked_by": best.ranked_by, "lossless": labels[id(lossless)] if timed else None, "times_as_fast": times}
    replace_text(folder / "best.json", encode(record, indent=2) + "\n")
    doubt = "" if best.is_certain else "; its 95 % bounds reach beyond"
    described = [f"{labels[id(row)]}, speed-up {format_value(row, speed_key(row))}" for row in winners]
    print(f"fastest by the lower bound, lossless or with {budget}: {described[0]}{doubt}")
    if lossless is not best.row:
        print(f"fastest lossless one by the lower bound: {described[1]}")
    for name, ratios in times.items():
        if not ratios:
            continue
        others = ", ".join(f"{other} {ratio:.2f}" for other, ratio in ratios.items())
        print(f"{name} is so many times as fast as: {others}")


def _times_as_fast(winner: Row, rows: Sequence[Row], labels: Mapping[int, str]) -> dict[str, float]:
    """Quotients of speed-ups over the same plain decoding, by the other setting's label."""
    key = speed_key(winner)
    others = (row for row in rows if row is not winner and row.get(key) and is_comparable(row, winner))
    return {labels[id(row)]: winner[key] / row[key] for row in others}
