"""The question a sweep answers: which setting is the fastest among those that keep the quality?"""

from collections.abc import Sequence
from dataclasses import dataclass

from lantern.errors import LanternError
from lantern.page.columns import better
from lantern.results import Row, is_baseline


@dataclass(frozen=True)
class Choice:
    """The fastest row within a budget; plain decoding itself where no other keeps it."""

    row: Row
    limit: float  # what the metric may be at worst
    is_certain: bool  # whether the whole 95 % interval of the metric is within the limit


@dataclass(frozen=True)
class Budget:
    """`metric` may be worse than plain decoding's by the share `within` of it: 0.1 is 10 %."""

    metric: str
    within: float

    def __post_init__(self) -> None:
        if self.within < 0:
            raise LanternError(f"budget.within={self.within} is negative; give a share such as 0.1 for 10 %")
        if not better(self.metric):
            raise LanternError(f"budget.metric={self.metric}: which way is better is not known; use frechet, say")

    def best(self, rows: Sequence[Row]) -> Choice | None:
        """None where plain decoding or the speed was not measured."""
        plain = next((row for row in rows if is_baseline(row) and row.get(self.metric) is not None), None)
        if plain is None:
            return None
        sign = 1 if better(self.metric) == "low" else -1
        limit = plain[self.metric] + sign * self.within * abs(plain[self.metric])
        judged = [row for row in rows if None not in (row.get(self.metric), row.get("speedup"))]
        inside = [row for row in judged if sign * row[self.metric] <= sign * limit]
        if not inside:
            return None
        row = max(inside, key=lambda row: row["speedup"])
        worst = row.get(f"{self.metric}_{'high' if sign > 0 else 'low'}")
        return Choice(row, limit, worst is not None and sign * worst <= sign * limit)
