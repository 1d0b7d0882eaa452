"""Which rows' speeds can be compared: those timed alike; and speed-ups of rows whose plain decoding differs, such as
with and without torch.compile, over the fastest one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, isfinite, log, nan
from statistics import fmean

from lantern.evaluation.rows import Row, is_baseline
from lantern.metrics.intervals import Interval, student_95

OVER_FASTEST = "speedup_over_fastest"
PLACE = ("device", "threads", "torch")
WHAT = ("model", "target_hash", "temperature", "top_k", "top_p", "cfg_scale", *PLACE)  # decodes, and where
HOW = ("dtype", "compile", "tf32")  # plain decoding takes less time or more for it
Kind = tuple[str, ...]


def over_fastest(rows: Sequence[Row]) -> list[Row]:
    """The rows; where those of one model, sampling and machine were timed against plain decoding of several kinds, each
    with OVER_FASTEST and its bounds: its speed-up as a multiple of the fastest kind's speed. Where a row was timed in
    turn with plain decoding of its kind, compiled and not, and one of these is the fastest, the smaller ratio counts:
    timings of different minutes differ by the machine's drift as well."""
    seconds: dict[Kind, dict[Kind, list[float]]] = {}
    methods = {_kind(row) for row in rows if row.get("baseline_latency_s") and not is_baseline(row)}
    for row in rows:
        is_mean = is_baseline(row) and _kind(row) in methods  # of the timings that the methods' rows hold
        if row.get("baseline_latency_s") and not is_mean:
            what, how = _kind(row)
            seconds.setdefault(what, {}).setdefault(how, []).append(row["baseline_latency_s"])
    if all(len(kinds) == 1 for kinds in seconds.values()):
        return list(rows)
    against = {what: _against_fastest(kinds) for what, kinds in seconds.items()}
    return [row | _own(row, against) for row in rows]


def is_comparable(row: Row, other: Row) -> bool:
    """Whether the same thing was decoded on the same machine, so that a quotient of their speed-ups is one of times."""
    return _kind(row)[0] == _kind(other)[0]


def speed_key(row: Row) -> str:
    """The key of the speed-up by which a row is compared with others of its table."""
    return OVER_FASTEST if row.get(OVER_FASTEST) is not None else "speedup"


def interval_of(row: Row, key: str) -> Interval:
    """A row's figure with its bounds, nan where it has none."""
    low, high = (row.get(f"{key}{end}") for end in ("_low", "_high"))
    return Interval(row[key], nan if low is None else low, nan if high is None else high)


def keys_of(interval: Interval, key: str) -> Row:
    """A figure under the keys of a row, without bounds where it has none."""
    return {name: value for name, value in interval.keys(key).items() if isfinite(value)}


def place_of(row: Row) -> Row:
    """Where a row was timed."""
    return {key: row.get(key) for key in PLACE}


def timed_together(rows: Sequence[Row]) -> list[Row]:
    """The rows that were timed where most methods were: a speed-up of another machine or number of threads is one over
    other plain decoding."""
    timed = [row for row in rows if row.get("speedup") is not None]
    methods = [row for row in timed if not is_baseline(row)] or timed
    counts = Counter(tuple(place_of(row).values()) for row in methods)
    most = max(counts, key=counts.__getitem__, default=None)
    return [row for row in rows if tuple(place_of(row).values()) == most]


def _kind(row: Row) -> tuple[Kind, Kind]:
    what, how = (tuple(map(str, map(row.get, keys))) for keys in (WHAT, HOW))
    return what, how


def _against_fastest(kinds: Mapping[Kind, Sequence[float]]) -> dict[Kind, Interval]:
    """Mean seconds of each kind over those of the fastest, with Student's bounds on the log scale from how much timings
    of one kind differ, which were made in different minutes; pooled over kinds. Where none was timed twice, that is
    unknown, and so are the bounds of all but the fastest."""
    means = {how: fmean(found) for how, found in kinds.items()}
    fastest = min(means, key=means.__getitem__)
    free = sum(len(found) - 1 for found in kinds.values())
    squares = sum((log(one) - fmean(map(log, found))) ** 2 for found in kinds.values() for one in found)
    width = student_95(free) * (squares / free) ** 0.5 if free else nan
    found = {}
    for how, timings in kinds.items():
        error = 0.0 if how == fastest else width * (1 / len(timings) + 1 / len(kinds[fastest])) ** 0.5
        ratio = means[how] / means[fastest]
        found[how] = Interval(ratio, ratio * exp(-error), ratio * exp(error))
    return found


def _own(row: Row, against: Mapping[Kind, Mapping[Kind, Interval]]) -> Row:
    what, how = _kind(row)
    own = against.get(what, {}).get(how)
    if own is None or row.get("speedup") is None:
        return {}
    compiled = against[what].get(_kind(row | {"compile": True})[1])
    is_paired = row.get("speedup_over_compiled") is not None and compiled is not None
    if is_paired and 1 in (own.value, compiled.value):
        found = min((interval_of(row, key) for key in ("speedup", "speedup_over_compiled")), key=lambda one: one.value)
    else:
        found = interval_of(row, "speedup").over(own)
    return keys_of(found, OVER_FASTEST)
