"""The quality budget of a sweep, and the fastest setting within it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from lantern.errors import LanternError, is_number, is_whole
from lantern.evaluation.rows import Row, is_baseline
from lantern.metrics.intervals import Interval, simultaneous_factor
from lantern.reporting.columns import KNOWN, better
from lantern.reporting.common_baseline import interval_of, speed_key, timed_together

UNPAIRED = ("output_tv", "code_distance", "output_distance", *(column.key for column in KNOWN if column.is_speed))
VERDICTS = ("lossless", "yes", "open", "no")  # yes: the bounds keep every limit; open: only the values do


class Choice(NamedTuple):
    """The fastest row within a budget by speed_rank, which may be plain decoding, of so many methods."""

    row: Row
    is_certain: bool
    candidates: int

    @property
    def widened(self) -> Row:
        """The row with the bounds of its speed_key at the level of 5 % over the number of candidates (Bonferroni): the
        highest of many lower bounds is often too high. None for a bound that is then unknown."""
        key = speed_key(self.row)
        found = simultaneous(self.row, key, self.candidates).keys(key)
        return self.row | {name: value if isfinite(value) else None for name, value in found.items()}

    @property
    def ranked_by(self) -> str:
        """The key of the bound that decided."""
        return f"{speed_key(self.row)}_low"


@dataclass(frozen=True)
class Budget:
    """How much worse than plain decoding's a setting's metrics may be: `within` as shares of plain decoding's value
    (0.1 is 10 %), `losses` in a metric's own unit; None is no limit. With `proven` the bounds have to keep every limit,
    of `min_images` judged images or more, at the level of 5 % over the number of lossy settings tried (Bonferroni): of
    many bounds at 95 % some keep it by chance. Else the values do. A lossless setting is within every budget."""

    within: Mapping[str, float | None]
    losses: Mapping[str, float | None] = field(default_factory=dict)
    proven: bool = False
    min_images: int = 0

    def __post_init__(self) -> None:
        for group in ("within", "losses"):
            for metric, limit in getattr(self, group).items():
                if limit is None:
                    continue
                if not is_number(limit) or not isfinite(limit):
                    raise LanternError(f"budget.{group}.{metric}={limit} is no limit; give 0 or more, or null for none")
                if limit < 0:
                    raise LanternError(f"budget.{group}.{metric}={limit} is negative; give 0 or more, or null")
                name = metric.removesuffix("_diff").removesuffix("_loss")
                if not better(name) or name in UNPAIRED:
                    raise LanternError(
                        f"budget.{group}.{metric}: rows hold no difference of it from plain decoding; use frechet"
                    )
                if name != metric:
                    raise LanternError(f"budget.{group}.{metric}: give the metric's own name, budget.{group}.{name}")
        if not is_whole(self.min_images) or self.min_images < 0 or not isinstance(self.proven, bool):
            raise LanternError(
                f"budget.min_images={self.min_images}, proven={self.proven}: give a whole number, and true or false"
            )

    def verdict(self, row: Row, tried: int = 1) -> str | None:
        """One of VERDICTS; None where a metric was not judged. tried: the lossy settings that it is one of."""
        if row.get("lossless") or is_baseline(row):
            return "lossless"
        stretch = simultaneous_factor(max(1, tried), None) if self.proven else 1.0
        found = [_verdict(row, metric, limit, True, stretch) for metric, limit in self._set("within")]
        found += [_verdict(row, metric, limit, False, stretch) for metric, limit in self._set("losses")]
        if None in found:
            return None
        verdict = max(found, key=VERDICTS.index, default="yes")
        return verdict if self._is_enough(row) or verdict == "no" else "open"

    def _is_enough(self, row: Row) -> bool:
        return (row.get("num_images") or 0) >= self.min_images

    def best(self, rows: Sequence[Row]) -> Choice | None:
        """Of the rows that were timed together; None where nothing but plain decoding was timed and judged."""
        tried = _lossy(rows)
        verdicts = [(row, self.verdict(row, tried)) for row in timed_together(rows) if row.get("speedup")]
        if all(is_baseline(row) or verdict is None for row, verdict in verdicts):
            return None
        accepted = ("lossless", "yes") if self.proven else ("lossless", "yes", "open")
        inside = [
            (row, verdict)
            for row, verdict in verdicts
            if verdict in accepted and (verdict == "lossless" or self._is_enough(row))
        ]
        if not inside:
            return None
        row, verdict = max(inside, key=lambda known: speed_rank(known[0]))
        return Choice(row, verdict != "open", number_of_methods([row for row, _ in inside]))

    def told(self, rows: Sequence[Row]) -> str:
        """In words, with how many images of the rows were judged where a number is required."""
        shares = [f"{metric} at most {100 * limit:.3g} %" for metric, limit in self._set("within")]
        losses = [f"{metric} at most {limit:.3g}" for metric, limit in self._set("losses")]
        tried = _lossy(rows)
        level = f"bounds at the level of 5 % over {tried} lossy settings" if tried > 1 else "95 % bounds"
        ends = f", by {level}" if self.proven else ""
        judged = max((row.get("num_images") or 0 for row in rows), default=0)
        needed = f" ({self.min_images:,} images required, {judged:,} judged)" if self.min_images else ""
        limits = f"{', '.join(shares + losses)} worse than plain decoding's{ends}"
        return f"{limits if shares or losses else 'no limit of what is lost'}{needed}"

    def _set(self, group: str) -> list[tuple[str, float]]:
        return [(metric, limit) for metric, limit in getattr(self, group).items() if limit is not None]


def speed_rank(row: Row) -> tuple[bool, float]:
    """Sort key, the fastest last: by the lower bound of its speed_key, since the point of a noisy row may lie far above
    its true value. Rows without a bound, such as those of a single prompt, come first, in the order of their points."""
    key = speed_key(row)
    low = row.get(f"{key}_low")
    has_bound = low is not None and isfinite(low)
    return has_bound, low if has_bound else row.get(key) or 0.0


def simultaneous(row: Row, key: str, candidates: int) -> Interval:
    """A row's figure with bounds at the level of the best of so many."""
    return interval_of(row, key).stretched(simultaneous_factor(candidates, row.get("num_timed")))


def number_of_methods(rows: Sequence[Row]) -> int:
    """How many rows the fastest was chosen from; plain decoding's speed-up is known."""
    return max(1, sum(not is_baseline(row) for row in rows))


def ranked(rows: Sequence[Row], budget: Budget) -> list[Row]:
    """The rows with their verdicts. Rows of several methods are sorted: those within the budget first, then by
    speed_rank; rows of one method keep their order."""
    tried = _lossy(rows)
    judged = [row | {"within_budget": budget.verdict(row, tried)} for row in rows]
    if len({row.get("method") for row in rows if not is_baseline(row)}) < 2:
        return judged
    return sorted(judged, key=lambda row: (not is_baseline(row), _class(row), *(-part for part in speed_rank(row))))


def _lossy(rows: Sequence[Row]) -> int:
    return sum(not (row.get("lossless") or is_baseline(row)) for row in rows)


def _class(row: Row) -> int:
    """Sort key: 0 for a row within the budget; rows that were not judged come last."""
    verdict = row["within_budget"]
    return max(0, VERDICTS.index(verdict) - 1) if verdict else len(VERDICTS)


def _verdict(row: Row, metric: str, limit: float, is_share: bool, stretch: float) -> str | None:
    """By the metric's paired difference from plain decoding, whose bound is stretched; higher is worse."""
    rising = better(metric) == "low"
    key = f"{metric}_diff" if rising else f"{metric}_loss"
    worse, value = row.get(key), row.get(metric)
    if worse is None or value is None:
        return None
    allowed = limit * abs(value - worse if rising else value + worse) if is_share else limit
    high = row.get(f"{key}_high")
    if high is not None and worse + stretch * (high - worse) <= allowed:
        return "yes"
    return "open" if worse <= allowed else "no"
