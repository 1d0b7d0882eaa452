"""The winner of a sweep: its quality budget, which rows compare, their order, and the fastest setting within it."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf, isfinite, nan
from pathlib import Path
from typing import NamedTuple

from lantern.errors import LanternError, check_whole, is_number
from lantern.evaluation.rows import WARNING_BREAK, Row, encode, is_baseline, run_name, setting_id
from lantern.figures import figure_of
from lantern.metrics.intervals import Interval, simultaneous_factor
from lantern.reporting.table import format_value, label_rows, marks
from lantern.runtime.files import replace_text

log = logging.getLogger(__name__)
HASHED_PARTS = {"weights": "target", "tokenizers": "tokenizer"}  # of a model, by the words of an error
VERDICTS = ("lossless", "yes", "open", "no")  # yes: the bounds keep every limit; open: only the values do
PLACE = ("device", "threads", "torch")
# on which the speed of plain decoding depends
BASELINE = (*PLACE, "dtype", "compile", "tf32", "cuda_graphs", "prompts_hash", "split")
MOST_APART = 1.5  # times of plain decoding beside the rows of a table


class Choice(NamedTuple):
    """The fastest row within a budget, which may be plain decoding, and from how many methods it was chosen."""

    row: Row
    is_certain: bool
    candidates: int

    @property
    def corrected(self) -> Row:
        """The row with the corrected bounds of its speed-up; None for a bound that is then unknown."""
        bounds = corrected_speed(self.row, self.candidates).keys("speedup")
        return self.row | {name: value if isfinite(value) else None for name, value in bounds.items()}

    def describe(self, label: str) -> str:
        """The setting, its speed-up with the corrected bounds, why it is this one, and what is not certain."""
        told = f"{label}, speed-up {format_value(self.corrected, 'speedup')}: its "
        if not speed_rank(self.row)[0]:
            told += "value is the largest, without bounds"
        elif self.candidates == 1 or is_baseline(self.row):
            told += "lower bound is the largest"
        else:
            low = format_value(self.row, "speedup_low")
            told += f"lower bound in the table, {low}, is the largest of {self.candidates} settings; "
            told += "the bounds here are wider, since it is the best of them"
        return told if self.is_certain else f"{told}; not certain, since the bounds of its losses are beyond the limit"


@dataclass(frozen=True)
class Budget:
    """How much worse than plain decoding's a setting's metrics may be: `within` as shares of plain decoding's value
    (0.1 is 10 %), `losses` in a metric's own unit; `most` limits figures of the setting itself, such as output_tv; None
    is no limit. With `proven`, the bounds must keep every limit, at level 5 % divided by the number of lossy
    settings tried (Bonferroni); otherwise the values must. Fewer than `min_images` judged images are not enough. A
    lossless setting is within every budget."""

    within: Mapping[str, float | None]
    losses: Mapping[str, float | None] = field(default_factory=dict)
    proven: bool = False
    min_images: int = 0
    most: Mapping[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for group, metric, limit in self._limits():
            _check_limit(f"budget.{group}", metric, limit)
        check_whole("budget", 0, min_images=self.min_images)

    def verdict(self, row: Row, tried: int = 1) -> str | None:
        """One of VERDICTS; None where a metric was not judged. tried: the number of lossy settings."""
        if row.get("lossless") or is_baseline(row):
            return "lossless"
        stretch = simultaneous_factor(max(1, tried), None) if self.proven else 1.0
        verdicts = [_verdict(row, *limit, stretch) for limit in self._limits()]
        if None in verdicts:
            return None
        worst = max(verdicts, key=VERDICTS.index, default="yes")
        return worst if self._has_enough_images(row) or worst == "no" else "open"

    def excess(self, row: Row) -> float:
        """How far a row is beyond the limits of `most`, in all; 0 within them, infinite if one was not measured."""
        found = [(row.get(figure), limit) for group, figure, limit in self._limits() if group == "most"]
        beyond = sum(inf if value is None else max(0.0, value - limit) for value, limit in found)
        return 0.0 if self.verdict(row) == "lossless" else beyond

    def best(self, rows: Sequence[Row]) -> Choice | None:
        """The fastest of the rows that were timed alike; None where only plain decoding was timed and judged."""
        tried = _number_of_lossy(rows)
        verdicts = [(row, self.verdict(row, tried)) for row in rows_timed_alike(rows) if row.get("speedup")]
        if all(is_baseline(row) or verdict is None for row, verdict in verdicts):
            return None
        wanted = ("yes",) if self.proven else ("yes", "open")
        inside = [
            (row, found) for row, found in verdicts
            if found == "lossless" or (found in wanted and self._has_enough_images(row))
        ]  # fmt: skip
        if not inside:
            return None
        row, verdict = max(inside, key=lambda judged: speed_rank(judged[0]))
        return Choice(row, verdict != "open", sum(not is_baseline(row) for row, _ in inside) or 1)

    def describe(self, rows: Sequence[Row]) -> str:
        """In words, with how many images of the rows were judged where a number is required."""
        limits, most = [], []
        for group, figure, limit in self._limits():
            amount = f"{100 * limit:.3g} %" if group == "within" else f"{limit:.3g}"
            (most if group == "most" else limits).append(f"{figure_of(figure).title} at most {amount}")
        proof = ", by simultaneous 95 % bounds" if self.proven else ""
        worse = [f"{', '.join(limits)} worse than plain decoding's{proof}"] if limits else []
        words = ", ".join([*worse, *most]) or "no limit of what is lost"
        judged = max((row.get("num_images") or 0 for row in rows), default=0)
        return words + (f" ({self.min_images:,} images required, {judged:,} judged)" if self.min_images else "")

    def _has_enough_images(self, row: Row) -> bool:
        return (row.get("num_images") or 0) >= self.min_images

    def _limits(self) -> list[tuple[str, str, float]]:
        """Group, figure and limit."""
        groups = ("within", "losses", "most")
        return [(group, *one) for group in groups for one in getattr(self, group).items() if one[1] is not None]


def _check_limit(group: str, metric: str, limit: object) -> None:
    if not is_number(limit) or not isfinite(limit) or limit < 0:
        raise LanternError(f"{group}.{metric}={limit} is no limit; give 0 or more, or null for none")
    if group == "budget.most":
        if figure_of(metric).better != "low":
            raise LanternError(f"{group}.{metric}: rows hold no such figure of which less is better; use output_tv")
        return
    if not figure_of(metric).better or figure_of(metric).kind != "images" or metric.endswith(("_diff", "_loss")):
        raise LanternError(f"{group}.{metric}: rows hold no difference of it from plain decoding; use frechet")


def _verdict(row: Row, group: str, metric: str, limit: float, stretch: float) -> str | None:
    """By the paired difference from plain decoding, or the value itself (most), of stretched bound; higher is worse."""
    if group == "most":
        return _judged(row.get(metric), row.get(f"{metric}_high"), limit, stretch)
    rising = figure_of(metric).better == "low"
    key = f"{metric}_diff" if rising else f"{metric}_loss"
    worse, value = row.get(key), row.get(metric)
    if worse is None or value is None:
        return None
    allowed = limit * abs(value - worse if rising else value + worse) if group == "within" else limit
    return _judged(worse, row.get(f"{key}_high"), allowed, stretch)


def _judged(value: float | None, high: float | None, allowed: float, stretch: float) -> str | None:
    if value is None:
        return None
    if high is not None and value + stretch * (high - value) <= allowed:
        return "yes"
    return "open" if value <= allowed else "no"


def rows_timed_alike(rows: Sequence[Row]) -> list[Row]:
    """The rows timed against the most common kind of baseline. Speed-ups over compiled plain decoding, or on another
    machine, cannot be compared with the others."""
    timed = [row for row in rows if row.get("speedup") is not None]
    methods = [row for row in timed if not is_baseline(row)] or timed
    counts = Counter(map(_timed_by, methods))
    most = max(counts, key=counts.__getitem__, default=None)
    return [row for row in rows if _timed_by(row) == most]


def _timed_by(row: Row) -> tuple[str, ...]:
    return tuple(str(row.get(key)) for key in BASELINE)


def warn_of_rows_left_out(measured: Sequence[Row], merged: Sequence[Row]) -> None:
    counts = Counter(setting_id(row) for row in measured if not is_baseline(row))
    if repeated := counts.total() - len(counts):
        log.warning(
            "points that repeat the setting of another one: %d, of which the table has the last row: speed, quality, "
            "metrics and output_tv are no part of a setting; measure such points in other folders", repeated,
        )  # fmt: skip
    methods = [row for row in merged if row.get("speedup") is not None and not is_baseline(row)]
    alike = rows_timed_alike(methods)
    if left := len(methods) - len(alike):
        kinds = [key for key in BASELINE if len({str(row.get(key)) for row in methods}) > 1]
        kind = ", ".join(f"{key} {alike[0].get(key)}" for key in kinds)
        log.warning(
            "rows not ranked: %d, whose plain decoding was timed with another %s than that of the others (%s), so that "
            "speed-ups do not compare", left, " or ".join(kinds), kind,
        )  # fmt: skip


def check_alike(rows: Sequence[Row]) -> None:
    found: dict[str, dict[str, Row]] = {}  # by kind and value
    for row in rows:
        weights = ((f"{part} of {row['model']}", f"{key}_hash") for part, key in HASHED_PARTS.items())
        values = [(kind, str(row.get(key) or "")) for kind, key in (("code", "code"), *weights)]
        values += [("code of " + text.split(" ")[0], text) for text in (row.get("user_code") or "").split(", ")]
        for kind, value in values:
            if value:
                found.setdefault(kind, {}).setdefault(value, row)
    for kind, by_value in found.items():
        if len(by_value) > 1:
            names = ", ".join(f"{value} in {run_name(by_value[value])}" for value in sorted(by_value))
            raise LanternError(f"the rows have different {kind} ({names}); measure all of them again with the same")


def speed_rank(row: Row) -> tuple[bool, float]:
    """Sort key, the fastest last: by the lower bound of the speed-up, since a noisy row's value may lie far above the
    truth. Rows without a bound come first, in the order of their values."""
    low = row.get("speedup_low")
    has_bound = low is not None and isfinite(low)
    return has_bound, low if has_bound else row.get("speedup") or 0.0


def corrected_speed(row: Row, candidates: int) -> Interval:
    """The speed-up with bounds at level 5 % divided by the number of candidates (Bonferroni), because the highest of
    many lower bounds is often too high. nan for unknown bounds."""
    low, high = (nan if row.get(key) is None else row[key] for key in ("speedup_low", "speedup_high"))
    return Interval(row["speedup"], low, high).stretched(simultaneous_factor(candidates, row.get("num_timed")))


def is_proven_faster(rows: Sequence[Row]) -> bool:
    """Whether the corrected bounds of any of the rows that were timed alike are above plain decoding's speed."""
    timed = [row for row in rows_timed_alike(rows) if row.get("speedup") and not is_baseline(row)]
    return any(corrected_speed(row, len(timed)).low > 1 for row in timed)


def rank_rows(rows: Sequence[Row], budget: Budget) -> list[Row]:
    """The rows with their verdicts, ranked if timed alike. Rows of several methods are sorted: those ranked first, of
    these those within the budget, then by speed_rank; rows of one method keep their order."""
    tried, timed = _number_of_lossy(rows), rows_timed_alike(rows)
    alike, unsteady = set(map(id, timed)), _of_unsteady_machine(timed)

    def judged_row(row: Row) -> Row:
        found = row | {"within_budget": budget.verdict(row, tried), "ranked": id(row) in alike}
        if unsteady and found["ranked"] and not is_baseline(row):
            found["warnings"] = WARNING_BREAK.join(filter(None, (row.get("warnings"), unsteady)))
        return found

    judged = [judged_row(row) for row in rows]
    if len({row.get("method") for row in rows if not is_baseline(row)}) < 2:
        return judged

    def place(row: Row) -> tuple:
        (has_bound, speed), verdict = speed_rank(row), row["within_budget"]
        kind = max(0, VERDICTS.index(verdict) - 1) if verdict else len(VERDICTS)  # 0: within the budget
        return not is_baseline(row), not row["ranked"], kind, not has_bound, -speed

    return sorted(judged, key=place)


def _of_unsteady_machine(alike: Sequence[Row]) -> str | None:
    """A warning where plain decoding, which is the same for rows of one guidance, took other times beside them."""
    times: dict[object, list[float]] = {}
    for row in alike:
        if not is_baseline(row) and row.get("baseline_latency_s"):
            times.setdefault(row.get("cfg_scale"), []).append(row["baseline_latency_s"])
    apart = max(times.values(), key=lambda own: max(own) / min(own), default=[1.0])
    if max(apart) < MOST_APART * min(apart):
        return None
    took = f"{min(apart):.3g} to {max(apart):.3g} s"
    return f"plain decoding took {took} beside the rows of this table; time them on a quiet machine"


def _number_of_lossy(rows: Sequence[Row]) -> int:
    return sum(not (row.get("lossless") or is_baseline(row)) for row in rows)


def report_best(folder: Path, rows: Sequence[Row], budget: Budget, best: Choice | None) -> None:
    """Prints the fastest setting within a budget and the fastest lossless one, and writes best.json. Where `best` is
    None, only removes the best.json of an earlier sweep."""
    if best is None:
        (folder / "best.json").unlink(missing_ok=True)
        return
    labels = dict(zip(map(id, rows), label_rows(rows), strict=True))
    timed = [row for row in rows_timed_alike(rows) if marks(row)["law"] == "lossless" and row.get("speedup")]
    candidates = sum(not is_baseline(row) for row in timed) or 1
    lossless = Choice(max(timed, key=speed_rank, default=best.row), True, candidates)
    record = {"budget": asdict(budget), "certain": best.is_certain, "setting": labels[id(best.row)]}
    record |= {key: best.row.get(key) for key in ("speedup", "speedup_low", "speedup_high")}  # as in the table
    record |= {"row": best.corrected, "candidates": best.candidates, **{key: best.row.get(key) for key in PLACE}}
    record |= {"ranked_by": "speedup_low", "lossless": labels[id(lossless.row)] if timed else None}
    replace_text(folder / "best.json", encode(record, indent=2) + "\n")
    print(f"fastest setting, lossless or with {budget.describe(rows)}: {best.describe(labels[id(best.row)])}")
    if not is_proven_faster(rows):
        print("no setting is proven faster than plain decoding")
    if lossless.row is not best.row:
        print(f"fastest lossless setting: {lossless.describe(labels[id(lossless.row)])}")
