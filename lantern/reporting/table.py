"""Result rows for readers: what their numbers mean, labels, the table on the terminal with its warnings, and a csv."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lantern.errors import is_number
from lantern.evaluation.rows import IDENTITY_KEYS, SETTING_KEYS, WARNING_BREAK, Row, config_keys, is_baseline
from lantern.runtime.files import replace_text

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
    Column("round_ms", "round ms", "Milliseconds per round.", "low", False, True),
    Column("draft_ms", "draft ms",
           "Milliseconds per round spent on drafting. The parts of a round are the host's time, and so none on a GPU, "
           "which works while the host goes on.", "low", False, True),
    Column("drafter_forward_ms", "drafter ms",
           "Milliseconds per round spent in the drafter's forward passes; a part of drafting.", "low", False, True),
    Column("verify_ms", "verify ms", "Milliseconds per round spent in the target's forward pass.", "low", False, True),
    Column("accept_ms", "accept ms",
           "Milliseconds per round spent on choosing the accepted tokens and committing them.", "low", False, True),
    Column("head_ms", "head ms",
           "Milliseconds per round in the diffusion head of verification; a part of accepting.", "low", False, True),
    Column("overhead", "overhead",
           "Share of a round that is neither a target nor a drafter forward pass; none on a GPU.", "low", False, True),
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
    Column("gpu_sharers", "GPU sharers",
           "Other processes on the same GPU while images were timed; none where NVML is mute.", "", False, True),
    Column("output_tv", "output TV",
           "Total variation between the target's law and the law of a committed token. Under shared noise an upper "
           "bound: the share of tokens that are not the target's own pick.", "low", True),
    Column("output_tv_floor", "TV floor",
           "Output TV of the exact rule by the same estimate, which would be 0 with infinitely many redraws; none "
           "where picks are compared.", "", False),
    Column("output_tv_positions", "TV positions", "Number of positions of which output TV is the mean.", "", False),
    Column("least_output_tv", "TV at least",
           "A lower bound of the output TV where it is not measured itself: how much rarer than in the target's law "
           "the first tokens of rounds are codes that the draft seldom proposes. 0 on average where nothing is lost.",
           "low", False),
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
    known = [column.key for column in KNOWN]
    ordered = [key for key in known if key in held] + [key for key in held if key not in known]
    return [_column(key) for key in ordered]


def better(key: str) -> str:
    """The direction in which a number is better: "high", "low", or "" where it is unknown."""
    return _column(key).better


def _column(key: str) -> Column:
    return next((column for column in KNOWN if column.key == key), None) or _metric_column(key)


def is_setting(key: str) -> bool:
    """Whether a row's key is a setting and not a result. Dotted keys are named as in the config."""
    return key in SETTING_KEYS or "." in key


def is_bound(key: str, keys: Sequence[str]) -> bool:
    """Whether a key is a bound of another key's interval."""
    return any(key.endswith(end) and key.removesuffix(end) in keys for end in BOUNDS)


def _metric_column(key: str) -> Column:
    way = "high" if key.endswith(HIGHER_IS_BETTER) else "low" if key.endswith(LOWER_IS_BETTER) else ""
    if key.endswith("_accuracy"):
        title = f"{key.removesuffix('_accuracy')} right"
        return Column(key, title, "Share of images that show what the prompt asks for.", way, True)
    found = [meaning for ending, meaning in ENDINGS.items() if key.endswith(ending)]
    meaning = found[0] if found else f"{key} in results.csv."
    return Column(key, key.replace("_", " "), meaning, way, key.endswith("_score"))


UNNAMED = ("lossless", "fingerprint")  # say nothing that the other keys do not, in words
LABEL_KEYS = (*(key for key in SETTING_KEYS + IDENTITY_KEYS if key not in UNNAMED), "tf32", "cuda_graphs")
SYMBOLS = {"delta": "δ", "lam": "λ", "eps": "ε", "alpha": "α", "beta": "β", "mu": "μ", "nu": "ν"}


def label_rows(rows: Sequence[Row]) -> list[str]:
    """A short name a row: "AR" for a baseline, else its method if there are several, the drafter if one method has two,
    and the settings in which rows of its method differ; else its rule, tree and bound. Equal names are numbered."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        groups.setdefault(_method(row), []).append(row)
    is_named = len(groups.keys() - {"AR"}) > 1  # rows without a method by their rule
    keys = {method: _differing(alike) for method, alike in groups.items()}
    if any("drafter_hash" in own for own in keys.values()):  # then every row names its drafter
        keys = {method: own if "drafter_hash" in own else ["drafter_hash", *own] for method, own in keys.items()}
    for method in keys.keys() - {"AR"} if is_named else ():
        if method or keys[method]:
            keys[method] = [*dict.fromkeys(["method" if method else "acceptance", *keys[method]])]
    labels = [_label(row, keys[_method(row)]) for row in rows]
    counts = [labels[:index].count(label) for index, label in enumerate(labels)]
    return [f"{label} #{count + 1}" if count else label for label, count in zip(labels, counts, strict=True)]


def _method(row: Row) -> object:
    return "AR" if is_baseline(row) else row.get("method")


def _differing(rows: Sequence[Row]) -> list[str]:
    return [key for key in _setting_keys(rows) if len({str(row.get(key)) for row in rows}) > 1]


def _setting_keys(rows: Sequence[Row]) -> list[str]:
    return [*LABEL_KEYS, *config_keys(rows)]


def _label(row: Row, keys: Sequence[str]) -> str:
    parts = [_setting(row, key) for key in keys if row.get(key) is not None]
    if is_baseline(row):
        return " ".join(["AR", *parts])
    bounds = [_setting(row, key) for key in ("delta", "lam") if row.get(key) is not None]
    return " ".join(parts) or " ".join([f"{row['acceptance']} {row['tree']}", *bounds])


def _setting(row: Row, key: str) -> str:
    if key == "drafter_hash":
        return str(row.get("drafter_name") or row[key])
    name = key.split(".")[-1]
    return row[key] if isinstance(row[key], str) else f"{SYMBOLS.get(name, name)} {row[key]:g}"


def marks(row: Row) -> dict[str, str]:
    """A setting in a word each: whether its law is plain decoding's, whether its drafter was trained, and a lossy
    setting's verdict under the sweep's budget."""
    law = "lossless" if row.get("lossless") or is_baseline(row) else "lossy"
    drafter = "trained" if row.get("drafter_hash") else "training-free"
    verdict = row.get("within_budget") if law == "lossy" else "yes"
    return {"law": law, "drafter": drafter, "budget": verdict or "-"}


def shared_settings(rows: Sequence[Row]) -> str:
    """A sentence with the settings that all methods share, hashes left out, and the number of judged images."""
    methods = [row for row in rows if not is_baseline(row)] or rows
    left_out = _differing(methods)
    shared = [key for key in _setting_keys(methods) if key not in left_out and not key.endswith("_hash")]
    settings = ", ".join(f"{key} {methods[0][key]}" for key in shared if methods[0].get(key) is not None)
    judged = methods[0].get("num_images")
    quality = f"Quality of {judged} images per setting; brackets" if judged else "Brackets"
    return f"All methods: {settings}. {quality}: 95 % bounds."


PRINTED = (  # columns of the terminal's table
    "speedup", "tokens_per_step", "target_forwards", "drafter_forwards", "latency_s", "round_ms", "draft_ms",
    "verify_ms", "accept_ms", "output_tv", "output_tv_floor", "output_tv_positions", "least_output_tv", "code_distance",
    "frechet", "frechet_diff", "kernel", "precision", "recall",
)  # fmt: skip
PAIRS = ("equal_images", "image_diff")  # printed where nothing else judges images
JUDGED = ("_accuracy", "_score")  # ends of the keys of metrics that have a column
BOUNDED = ("speedup", "output_tv", "least_output_tv", "frechet", "frechet_diff")


def format_table(rows: Sequence[Row]) -> str:
    """The rows as an aligned text table: the fixed columns that hold something, then every other quality metric;
    without any, how far images are from plain decoding's."""
    judged = dict.fromkeys(key for row in rows for key in row if key.endswith(JUDGED))
    pairs = () if judged or any("frechet" in row for row in rows) else PAIRS
    keys = [key for key in [*PRINTED, *judged, *pairs] if any(row.get(key) is not None for row in rows)]
    words = [marks(row) for row in rows if not is_baseline(row)] or [marks(row) for row in rows]
    differing = [name for name in words[0] if len({line[name] for line in words}) > 1]
    lines = [["setting", *differing, *(_column(key).title for key in keys)]]
    for label, row in zip(label_rows(rows), rows, strict=True):
        lines.append([label, *(marks(row)[name] for name in differing), *(format_value(row, key) for key in keys)])
    first, *widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    aligned = [
        "  ".join([label.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))])
        for label, *cells in lines
    ]
    return "\n".join([aligned[0], "-" * len(aligned[0]), *aligned[1:]])


def format_value(row: Row, key: str) -> str:
    """A number with its 95 % bounds, if the key is a bounded one, "-" for none; a whole number is written as one. An
    output TV says that it has no bounds: it is of a single image."""
    value = row.get(key)
    if value is None or isinstance(value, int):
        return "-" if value is None else str(value)
    bounds = bounds_of(row, key) if key in BOUNDED else ""
    return digits_of(value)(value) + (bounds or (" (no bounds)" if key == "output_tv" else ""))


def bounds_of(row: Row, key: str) -> str:
    """The bounds of a figure as they stand behind it: " [low, high]"; nothing without any."""
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    if low is None or high is None:
        return ""
    text = digits_of(row[key])
    return f" [{text(low)}, {text(high)}]"


def digits_of(value: float) -> Callable[[float], str]:
    """How a figure and its bounds are written: two decimals, three digits below 0.1."""
    return "{:.3g}".format if abs(value) < 0.1 else "{:.2f}".format


def write_csv(rows: Sequence[Row], path: str | Path) -> None:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    replace_text(path, text.getvalue())


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def warning_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each warning, with the labels of its rows. Sentences that differ only in their numbers are one
    warning, of which the first is shown."""
    kinds: dict[str, list[tuple[str, str]]] = {}  # the sentence without its numbers -> labels and sentences
    for label, row in zip(label_rows(rows), rows, strict=True):
        for sentence in filter(None, (row.get("warnings") or "").split(WARNING_BREAK)):
            kinds.setdefault(NUMBER.sub("#", sentence), []).append((label, sentence))
    lines = []
    for warned in kinds.values():
        labels, sentences = zip(*warned, strict=True)
        where = "all rows" if len(labels) == len(rows) > 1 else ", ".join(labels)
        note = " (numbers of the first row)" if len(set(sentences)) > 1 else ""
        lines.append(f"warning ({where}): {sentences[0]}{note}")
    return lines
