"""The numbers of a result row for readers: title, meaning, and which direction is better."""

from collections.abc import Sequence
from dataclasses import dataclass

from lantern.evaluation.rows import SETTING_KEYS, Row

BOUNDS = ("_low", "_high")


@dataclass(frozen=True)
class Column:
    """A number of result rows."""

    key: str
    title: str
    meaning: str
    better: str  # "high", "low", or "" where neither is
    shown: bool  # at first
    is_speed: bool = False  # else it is about quality


KNOWN = (
    Column("speedup", "speed-up",
           "over plain AR decoding, timed in turn with it on the same prompts", "high", True, True),
    Column("tokens_per_step", "tokens a step", "image tokens committed per target forward", "high", True, True),
    Column("end_to_end_speedup", "end to end", "speed-up with text encoder and image decoder", "high", True, True),
    Column("latency_s", "s an image", "token time of one image alone", "low", True, True),
    Column("end_to_end_s", "s end to end", "from prompt to image", "low", False, True),
    Column("draft_ms", "draft ms", "of a round", "low", False, True),
    Column("drafter_forward_ms", "drafter ms",
           "of a round: in the drafter's forwards, a part of drafting", "low", False, True),
    Column("verify_ms", "verify ms", "of a round", "low", False, True),
    Column("accept_ms", "accept ms", "of a round", "low", False, True),
    Column("overhead", "overhead",
           "share of a round that is neither a target nor a drafter forward", "low", False, True),
    Column("target_forwards", "target forwards", "an image, after its prefill", "low", False, True),
    Column("target_nodes", "target nodes", "an image: tree nodes that the target judged", "low", False, True),
    Column("drafter_forwards", "drafter forwards", "an image", "low", False, True),
    Column("baseline_latency_s", "AR s an image", "of the plain decoding it was timed with", "", False, True),
    Column("ar_over_floor", "AR over floor", "an AR step over the time of copying what it reads", "", False, True),
    Column("num_timed", "timed", "images timed alone", "", False, True),
    Column("output_tv", "output TV",
           "total variation between p and a committed token's law; under shared noise an upper bound: the share "
           "of tokens that are not the target's own pick", "low", True),
    Column("code_distance", "code distance",
           "expected distance of a token of p and the one committed; 1: of a code and its nearest", "low", True),
    Column("frechet", "Fréchet", "distance to real images in feature space; biased upwards at few images", "low", True),
    Column("kernel", "kernel", "unbiased kernel distance to real images; may fall below 0", "low", False),
    Column("precision", "precision", "share of images that look real", "high", True),
    Column("recall", "recall", "share of real images that are covered", "high", True),
    Column("num_images", "images", "judged", "", False),
)  # fmt: skip
HIGHER_IS_BETTER = ("_accuracy", "_score", "_share", "precision", "recall", "diversity")
LOWER_IS_BETTER = ("_tv", "_distance", "_diff", "_loss")


def columns_of(rows: Sequence[Row]) -> list[Column]:
    """A column for every number in any row: the known ones first, then the metrics in the rows' order."""
    keys = list(dict.fromkeys(key for row in rows for key in row if not is_setting(key)))
    held = [key for key in keys if any(_is_number(row.get(key)) for row in rows) and not is_bound(key, keys)]
    known = {column.key: column for column in KNOWN}
    return [known[key] for key in known if key in held] + [_unknown(key) for key in held if key not in known]


def better(key: str) -> str:
    """The direction in which a number is better: "high", "low", or "" where it is unknown."""
    column = {known.key: known for known in KNOWN}.get(key) or _unknown(key)
    return column.better


def is_setting(key: str) -> bool:
    """Whether a row's key is a setting and not a result. Dotted keys are named as in the config."""
    return key in SETTING_KEYS or "." in key


def is_bound(key: str, keys: Sequence[str]) -> bool:
    """Whether a key is a bound of another key's interval."""
    return any(key.endswith(end) and key.removesuffix(end) in keys for end in BOUNDS)


def _unknown(key: str) -> Column:
    way = "high" if key.endswith(HIGHER_IS_BETTER) else "low" if key.endswith(LOWER_IS_BETTER) else ""
    if key.endswith("_accuracy"):
        title = f"{key.removesuffix('_accuracy')} right"
        return Column(key, title, "share of images that show what was asked for", way, True)
    return Column(key, key.replace("_", " "), key, way, key.endswith("_score"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
