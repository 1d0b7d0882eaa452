"""The numbers of a result row for readers: title, meaning, and which direction is better."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lantern.errors import is_number
from lantern.evaluation.rows import SETTING_KEYS, Row
from lantern.reporting.common_baseline import OVER_FASTEST

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
    Column(OVER_FASTEST, "over fastest AR",
           "Time of this sweep's fastest plain decoding over this setting's: makes speed-ups over baselines that "
           "differ, such as with and without torch.compile, comparable.", "high", True, True),
    Column("speedup", "speed-up",
           "Time of plain decoding over this setting's, both timed in turn on the same prompts, from prompt to tokens.",
           "high", True, True),
    Column("speedup_over_compiled", "over compiled",
           "Time of plain decoding with torch.compile over this setting's.", "high", False, True),
    Column("tokens_per_step", "tokens per step",
           "Image tokens committed per forward pass of the target.", "high", True, True),
    Column("end_to_end_speedup", "end to end",
           "Speed-up with the image decoder included.", "high", True, True),
    Column("latency_s", "s per image",
           "Seconds from prompt to one image's tokens, text encoder included, one image at a time.", "low", True, True),
    Column("end_to_end_s", "s end to end", "Seconds from prompt to image.", "low", False, True),
    Column("draft_ms", "draft ms",
           "Milliseconds per round spent on drafting. The parts of a round are the host's time: on a GPU the last one, "
           "accepting, waits for what the others have started.", "low", False, True),
    Column("drafter_forward_ms", "drafter ms",
           "Milliseconds per round spent in the drafter's forward passes; a part of drafting.", "low", False, True),
    Column("verify_ms", "verify ms", "Milliseconds per round spent in the target's forward pass.", "low", False, True),
    Column("accept_ms", "accept ms",
           "Milliseconds per round spent on choosing the accepted tokens and committing them.", "low", False, True),
    Column("head_ms", "head ms",
           "Milliseconds per round in the diffusion head of verification; a part of accepting.", "low", False, True),
    Column("overhead", "overhead",
           "Share of a round that is neither a target nor a drafter forward pass; the host's time, no figure of a GPU.",
           "low", False, True),
    Column("target_forwards", "target forwards",
           "Forward passes of the target per image, without the prompt's.", "low", False, True),
    Column("target_nodes", "target nodes", "Tree nodes per image that the target judged.", "low", False, True),
    Column("drafter_forwards", "drafter forwards", "Forward passes of the drafter per image.", "low", False, True),
    Column("baseline_latency_s", "AR s per image",
           "Seconds per image of the plain decoding that this setting was timed against.", "", False, True),
    Column("ar_over_floor", "AR over floor",
           "Time of a step of plain decoding over that of reading its memory at the bandwidth of a copy.", "", False,
           True),
    Column("num_timed", "timed", "Number of images timed one at a time.", "", False, True),
    Column("retimed", "timed again",
           "Number of images timed more than once, since other processes used the cores or the run was stopped between "
           "two sides.", "", False, True),
    Column("other_cores", "other cores", "Cores that other processes used while images were timed.", "", False, True),
    Column("output_tv", "output TV",
           "Total variation between the target's law and the law of a committed token. Under shared noise an upper "
           "bound: the share of tokens that are not the target's own pick.", "low", True),
    Column("code_distance", "code distance",
           "Expected distance in the codebook between a token of the target's law and the committed token; 1 is the "
           "mean distance of a code and its nearest neighbour.", "low", True),
    Column("frechet", "Fréchet",
           "Fréchet distance to real images in feature space; biased upwards for few images.", "low", True),
    Column("kernel", "kernel",
           "Kernel distance to real images in feature space; unbiased, so it can be below 0.", "low", False),
    Column("precision", "precision", "Share of images that lie among the real images.", "high", True),
    Column("recall", "recall", "Share of real images that lie among the images of this setting.", "high", True),
    Column("num_images", "images", "Number of images judged.", "", False),
)  # fmt: skip
ENDINGS = {  # of metrics that are not listed above
    "_diff": "Difference from plain decoding on the same prompts and seeds.",
    "_loss": "Plain decoding's figure less this setting's, on the same prompts and seeds.",
    "_score": "Mean score of the images under this metric.",
}
HIGHER_IS_BETTER = ("_accuracy", "_score", "_share", "precision", "recall", "diversity")
LOWER_IS_BETTER = ("_tv", "_distance", "_diff", "_loss")


def columns_of(rows: Sequence[Row]) -> list[Column]:
    """A column for every number in any row: the known ones first, then the metrics in the rows' order."""
    keys = list(dict.fromkeys(key for row in rows for key in row if not is_setting(key)))
    held = [key for key in keys if any(is_number(row.get(key)) for row in rows) and not is_bound(key, keys)]
    known = {column.key: column for column in KNOWN}
    if OVER_FASTEST in held:  # in its place at first
        known["speedup"] = replace(known["speedup"], shown=False)
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
        return Column(key, title, "Share of images that show what the prompt asks for.", way, True)
    found = [meaning for ending, meaning in ENDINGS.items() if key.endswith(ending)]
    meaning = found[0] if found else f"{key} in results.csv."
    return Column(key, key.replace("_", " "), meaning, way, key.endswith("_score"))
