"""Speed-ups of rows whose plain decoding differs, such as with and without torch.compile, over the fastest one."""

from collections.abc import Sequence
from statistics import fmean

from lantern.evaluation.rows import Row

OVER_FASTEST = "speedup_over_fastest"
WHAT = ("model", "target_hash", "temperature", "top_k", "top_p", "cfg_scale", "device", "threads")  # decodes, and where
HOW = ("dtype", "compile", "tf32")  # plain decoding takes less time or more for it
ENDS = ("", "_low", "_high")


def over_fastest(rows: Sequence[Row]) -> list[Row]:
    """The rows; where those of one model, sampling and machine were timed against plain decoding of several kinds, each
    with OVER_FASTEST and its bounds: its speed-up as a multiple of the fastest kind's speed."""
    seconds: dict[tuple, dict[tuple, list[float]]] = {}
    for row in rows:
        if row.get("baseline_latency_s"):
            what, how = _kind(row)
            seconds.setdefault(what, {}).setdefault(how, []).append(row["baseline_latency_s"])
    if all(len(kinds) == 1 for kinds in seconds.values()):
        return list(rows)
    means = {what: {how: fmean(found) for how, found in kinds.items()} for what, kinds in seconds.items()}
    return [row | _own(row, means) for row in rows]


def is_comparable(row: Row, other: Row) -> bool:
    """Whether the same thing was decoded on the same machine, so that a quotient of their speed-ups is one of times."""
    return _kind(row)[0] == _kind(other)[0]


def speed_key(row: Row) -> str:
    """The key of the speed-up by which a row is compared with others of its table."""
    return OVER_FASTEST if row.get(OVER_FASTEST) is not None else "speedup"


def _kind(row: Row) -> tuple[tuple, tuple]:
    what, how = (tuple(map(str, map(row.get, keys))) for keys in (WHAT, HOW))
    return what, how


def _own(row: Row, means: dict[tuple, dict[tuple, float]]) -> Row:
    what, how = _kind(row)
    own = means.get(what, {}).get(how)
    if own is None or row.get("speedup") is None:
        return {}
    share = min(means[what].values()) / own
    return {OVER_FASTEST + end: row[f"speedup{end}"] * share for end in ENDS if row.get(f"speedup{end}") is not None}
