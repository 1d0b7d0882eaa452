"""Result rows for readers: what their numbers mean, labels, the table on the terminal with its warnings, and a csv."""

import csv
import io
import re
import shutil
import sys
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from textwrap import fill

from lantern.errors import is_number
from lantern.evaluation.rows import IDENTITY_KEYS, SETTING_KEYS, WARNING_BREAK, Row, config_keys, is_baseline
from lantern.figures import FIGURES, Figure, figure_of
from lantern.runtime.files import replace_text

BOUNDS = ("_low", "_high")


def columns_of(rows: Sequence[Row]) -> list[Figure]:
    """A figure for every number in any row: those of FIGURES first, then the other metrics' in the rows' order."""
    keys = list(dict.fromkeys(key for row in rows for key in row if not is_setting(key)))
    bounds = {f"{key}{end}" for key in keys for end in BOUNDS}
    held = [key for key in keys if any(is_number(row.get(key)) for row in rows) and key not in bounds]
    return [figure_of(key) for key in (*(k for k in FIGURES if k in held), *(k for k in held if k not in FIGURES))]


def is_setting(key: str) -> bool:
    """Whether a row's key is a setting and not a result. Dotted keys are named as in the config."""
    return key in SETTING_KEYS or "." in key


UNNAMED = ("lossless", "fingerprint")  # say nothing that the other keys do not, in words
LABEL_KEYS = (*(key for key in SETTING_KEYS + IDENTITY_KEYS if key not in UNNAMED), "tf32", "cuda_graphs")
TOLD = ("drafter_hash", "tree")  # by a drafter's name, where it is the only one with them
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
    """The keys in which they differ, without what a drafter's or a tree's name tells already: its own settings."""

    def values(*keys: str) -> int:
        return len({tuple(str(row.get(key)) for key in keys) for row in rows})

    def is_told(key: str, part: str) -> bool:
        return key != part and (key in TOLD or "." in key) and values(part) == values(part, key)

    found = [key for key in (*LABEL_KEYS, *config_keys(rows)) if values(key) > 1]
    return [key for key in found if not any(is_told(key, part) for part in ("drafter", "tree") if part in found)]


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
    return row[key] if isinstance(row[key], str) else f"{SYMBOLS.get(name, name)} {row[key]:.12g}"


BUDGET_WORDS = (
    "budget: yes, every limit is kept, bounds included; open, by the values alone or by too few images; no, a limit is "
    "not kept; -, not judged"
)


def marks(row: Row) -> dict[str, str]:
    """A setting in a word each: whether its law is plain decoding's, a lossy setting's verdict under the budget of the
    sweep, and whether its drafter was trained. In this order they matter."""
    law = "lossless" if row.get("lossless") or is_baseline(row) else "lossy"
    drafter = "trained" if row.get("drafter_hash") else "training-free"
    verdict = row.get("within_budget") if law == "lossy" else "yes"
    return {"law": law, "budget": verdict or "-", "drafter": drafter}


def shared_settings(rows: Sequence[Row]) -> str:
    """A sentence with the settings that all methods share, hashes left out, and the number of judged images."""
    methods = [row for row in rows if not is_baseline(row)] or rows
    known = (key for key in (*LABEL_KEYS, *config_keys(methods)) if not key.endswith("_hash"))
    shared = [key for key in known if len({str(row.get(key)) for row in methods}) == 1]
    settings = ", ".join(f"{key} {methods[0][key]}" for key in shared if methods[0].get(key) is not None)
    judged = methods[0].get("num_images")
    quality = f"Quality of {judged} images per setting; brackets" if judged else "Brackets"
    return f"All methods: {settings}. {quality}: 95 % bounds."


PAIRS = ("equal_images", "image_diff")  # printed where nothing else judges images
MARKED = 4  # the rank of marks: before the figures of this rank
GAP = "  "  # between columns


def format_table(rows: Sequence[Row], width: int = 0) -> str:
    """The rows as an aligned text table: the printed figures that hold something, and without any of images, how far
    these are from plain decoding's. width: of the terminal; columns beyond it are named below, by rank; 0: all fit."""
    found = [figure for figure in columns_of(rows) if figure.printed]
    if not any(figure.kind == "images" for figure in found):
        found += [figure for figure in columns_of(rows) if figure.key in PAIRS]
    words = [marks(row) for row in rows]
    methods = [own for own, row in zip(words, rows, strict=True) if not is_baseline(row)] or words
    differing = [name for name in words[0] if len({own[name] for own in methods}) > 1]
    labels = _aligned(["setting", *label_rows(rows)])
    columns: dict[str | Figure, list[str]] = {one: _aligned([one, *(own[one] for own in words)]) for one in differing}
    columns |= {one: _aligned([one.title, *(format_value(row, one.key) for row in rows)]) for one in found}
    groups: list[tuple[int, list[str | Figure]]] = [(MARKED, [name]) for name in differing]
    for one in [figure for figure in found if not figure.beside]:
        groups.append((one.printed or len(FIGURES), [one, *(other for other in found if other.beside == one.key)]))
    shown, room = set[str | Figure](), width - len(labels[0])
    for _, group in sorted(groups, key=itemgetter(0)):
        room -= sum(len(GAP) + len(columns[one][0]) for one in group)
        if not width or room >= 0 or not shown:
            shown.update(group)
    lines = [GAP.join(cells) for cells in zip(labels, *(columns[one] for one in columns if one in shown), strict=True)]
    left = ", ".join(columns[one][0].strip() for one in columns if one not in shown)
    told = [*([f"in report.html: {left}"] if left else []), *([BUDGET_WORDS] if "budget" in shown else [])]
    is_priced = any(one.key == "output_tv" for one in found)
    if is_priced and len(rows) > 1 and {own["law"] for own in words} == {"lossless"}:
        told.append("all settings are lossless: their output TV is its floor, or what rounding flipped")
    below = [fill(text, width or len(text)) for text in told]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], *below])


def _aligned(cells: Sequence[str]) -> list[str]:
    """Cells of one width: settings to the left, all else to the right."""
    width = max(map(len, cells))
    return [cell.ljust(width) if cells[0] == "setting" else cell.rjust(width) for cell in cells]


def terminal_width() -> int:
    """Letters of a line of the terminal that standard output goes to; 0 where it goes elsewhere."""
    return shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0


def format_value(row: Row, key: str) -> str:
    """A number with its 95 % bounds, "-" for none; a whole number is written as one. An output TV says that it has
    no bounds: it is of a single image."""
    value = row.get(key)
    if value is None or isinstance(value, int):
        return "-" if value is None else str(value)
    text = "{:.3g}".format if abs(value) < 0.1 else "{:.2f}".format  # of the bounds, too
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    if low is None or high is None:
        return text(value) + (" (no bounds)" if key == "output_tv" else "")
    return f"{text(value)} [{text(low)}, {text(high)}]"


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
