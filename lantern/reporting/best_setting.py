"""The answer of a sweep: its fastest setting within the budget, on the terminal and in best.json."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lantern.evaluation.rows import Row, encode
from lantern.reporting.common_baseline import is_comparable, keys_of, place_of, speed_key, timed_together
from lantern.reporting.labels import label_rows, marks
from lantern.reporting.quality_budget import Budget, Choice, number_of_methods, simultaneous, speed_rank
from lantern.reporting.table import bounds_of, format_value
from lantern.runtime.files import replace_text


def report_best(folder: Path, rows: Sequence[Row], budget: Budget, best: Choice | None) -> None:
    """Prints the fastest setting within a budget, the fastest lossless one and their speed against every other setting,
    and writes best.json. Bounds are those of the best of so many candidates. Where `best` is None, only removes the
    best.json of an earlier sweep."""
    if best is None:
        (folder / "best.json").unlink(missing_ok=True)
        return
    labels = dict(zip(map(id, rows), label_rows(rows), strict=True))
    timed = [row for row in timed_together(rows) if marks(row)["law"] == "lossless" and row.get("speedup")]
    lossless = Choice(max(timed, key=speed_rank, default=best.row), True, number_of_methods(timed))
    winners = [best, *([] if lossless.row is best.row else [lossless])]
    times = {labels[id(winner.row)]: _times_as_fast(winner, rows, labels) for winner in winners}
    record = {"budget": asdict(budget), "certain": best.is_certain, "setting": labels[id(best.row)]}
    record |= {"row": best.widened, "candidates": best.candidates, **place_of(best.row)}
    name = labels[id(lossless.row)] if timed else None
    record |= {"ranked_by": best.ranked_by, "lossless": name, "times_as_fast": times}
    replace_text(folder / "best.json", encode(record, indent=2) + "\n")
    doubt = "" if best.is_certain else "; its 95 % bounds reach beyond"
    described = [f"{labels[id(one.row)]}, {_speed(one)}" for one in winners]
    print(f"fastest by the lower bound, lossless or with {budget.told(rows)}: {described[0]}{doubt}")
    if len(winners) > 1:
        print(f"fastest lossless one by the lower bound: {described[1]}")
    for winner, ratios in times.items():
        if ratios:
            others = ", ".join(f"{name} {row['ratio']:.2f}{bounds_of(row, 'ratio')}" for name, row in ratios.items())
            print(f"{winner} is so many times as fast as: {others}")


def _speed(choice: Choice) -> str:
    return f"speed-up {format_value(choice.widened, speed_key(choice.row))}, the best of {choice.candidates}"


def _times_as_fast(winner: Choice, rows: Sequence[Row], labels: Mapping[int, str]) -> dict[str, Row]:
    """By the other setting's label: the quotient of the speed-ups, "ratio", over the same plain decoding with bounds
    from those of both rows, at the level of the best of so many."""
    key = speed_key(winner.row)
    own = simultaneous(winner.row, key, winner.candidates)
    others = (row for row in rows if row is not winner.row and row.get(key) and is_comparable(row, winner.row))
    return {labels[id(row)]: keys_of(own.over(simultaneous(row, key, winner.candidates)), "ratio") for row in others}
