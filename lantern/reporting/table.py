"""Result rows for people: labels that name what differs, a table for the terminal, a csv."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from lantern.evaluation.rows import Row, config_keys, encode, is_baseline
from lantern.reporting.quality_budget import Budget, Choice
from lantern.runtime.files import replace_text

LABEL_KEYS = (
    "model", "drafter", "drafter_hash", "tree", "verification", "acceptance", "k", "delta", "lam", "temperature",
    "top_k", "top_p", "cfg_scale", "seed", "target_hash", "prompts_hash", "split", "num_images", "batch_size", "dtype",
    "device", "compile", "tf32",
)  # fmt: skip
COLUMNS = {
    "speedup": "speed-up", "tokens_per_step": "tokens/step", "target_forwards": "passes",
    "drafter_forwards": "drafter's", "latency_s": "s/image", "draft_ms": "draft ms", "verify_ms": "verify ms",
    "accept_ms": "accept ms", "output_tv": "output TV", "code_distance": "code dist.",
    "frechet": "Fréchet",
    "frechet_diff": "less AR's", "kernel": "kernel", "precision": "prec.",
    "recall": "recall",
}  # fmt: skip
JUDGED = ("_accuracy", "_score")  # the ends of the keys of what a judge says of images
SYMBOLS = {"delta": "δ", "lam": "λ", "eps": "ε", "alpha": "α", "beta": "β", "mu": "μ", "nu": "ν"}
BOUNDED = ("speedup", "output_tv", "frechet", "frechet_diff")


def label_rows(rows: Sequence[Row]) -> list[str]:
    """A short name a row: "AR" for a baseline, else its method where rows are of several, and the settings in which
    rows of its method differ. What still reads alike is numbered."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        groups.setdefault(_method(row), []).append(row)
    named = ["method"] if len(groups.keys() - {"AR"}) > 1 else []
    keys = {method: [*([] if method == "AR" else named), *_differing(alike)] for method, alike in groups.items()}
    labels = [_label(row, keys[_method(row)]) for row in rows]
    counts = [labels[:place].count(label) for place, label in enumerate(labels)]
    return [f"{label} #{count + 1}" if count else label for label, count in zip(labels, counts, strict=True)]


def _method(row: Row) -> object:
    return "AR" if is_baseline(row) else row.get("method")


def _differing(rows: Sequence[Row]) -> list[str]:
    return [key for key in (*LABEL_KEYS, *config_keys(rows)) if len({str(row.get(key)) for row in rows}) > 1]


def _label(row: Row, keys: Sequence[str]) -> str:
    parts = [
        str(row[key]) if isinstance(row[key], str) else f"{_symbol(key)} {row[key]:g}"
        for key in keys
        if row.get(key) is not None
    ]
    if is_baseline(row):
        return " ".join(["AR", *parts])
    return " ".join(parts) or f"{row['acceptance']} {row['tree']}"


def _symbol(key: str) -> str:
    name = key.split(".")[-1]
    return SYMBOLS.get(name, name)


def format_table(rows: Sequence[Row]) -> str:
    """The rows as an aligned text table: the fixed columns that hold something, then every other quality metric."""
    headers, lines = _cells(rows)
    widths = [max(len(line[i]) for line in [headers, *lines]) for i in range(len(headers))]
    aligned = [_align(line, widths) for line in [headers, *lines]]
    return "\n".join([aligned[0], "-" * len(aligned[0]), *aligned[1:]])


def _align(line: Sequence[str], widths: Sequence[int]) -> str:
    label, *numbers = line
    return "  ".join([label.ljust(widths[0]), *(n.rjust(width) for n, width in zip(numbers, widths[1:], strict=True))])


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    judged = [key for key in rows[0] if key.endswith(JUDGED)]
    keys = [key for key in [*COLUMNS, *judged] if any(row.get(key) is not None for row in rows)]
    headers = [COLUMNS.get(key, key.removesuffix(JUDGED[0]).replace("_", " ")) for key in keys]
    told = _differing_marks(rows)
    lines = [
        [label, *(marks(row)[name] for name in told), *(_cell(row, key) for key in keys)]
        for label, row in zip(label_rows(rows), rows, strict=True)
    ]
    return ["setting", *told, *headers], lines


def marks(row: Row) -> dict[str, str]:
    """What a setting is, in a word each: whether its law is plain decoding's, whether its drafter had to be trained,
    and a lossy one's verdict under the sweep's budget."""
    law = "lossless" if row.get("lossless") or is_baseline(row) else "lossy"
    drafter = "trained" if row.get("drafter_hash") else "training-free"
    verdict = row.get("within_budget") if law == "lossy" else "yes"
    return {"law": law, "drafter": drafter, "budget": verdict or "-"}


def _differing_marks(rows: Sequence[Row]) -> list[str]:
    """What all methods have in common goes without saying."""
    words = [marks(row) for row in rows if not is_baseline(row)] or [marks(row) for row in rows]
    return [name for name in words[0] if len({line[name] for line in words}) > 1]


def _cell(row: Row, key: str) -> str:
    value = row.get(key)
    if value is None:
        return "-"
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    bounds = f" [{low:.2f}, {high:.2f}]" if key in BOUNDED and low is not None and high is not None else ""
    return f"{value:.3g}{bounds}" if abs(value) < 0.1 else f"{value:.2f}{bounds}"


def write_csv(rows: Sequence[Row], path: str | Path) -> None:
    """All rows, every key of any of them a column."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    replace_text(path, text.getvalue())


def shared_settings(rows: Sequence[Row]) -> str:
    """A sentence: what all methods have in common, and how many images were judged."""
    methods = [row for row in rows if not is_baseline(row)] or rows
    shared = [
        key
        for key in (*LABEL_KEYS, *config_keys(methods))
        if len({str(row.get(key)) for row in methods}) == 1 and methods[0].get(key) is not None
    ]
    settings = ", ".join(f"{key} {methods[0][key]}" for key in shared)
    return (
        f"All methods: {settings}. Quality of {methods[0].get('num_images')} images a setting; brackets: 95 % bounds."
    )


def tell_best(folder: Path, rows: Sequence[Row], budget: Budget, best: Choice | None) -> None:
    """Prints the fastest setting within a budget, and how many times as fast it is as the others, likewise the fastest
    lossless one, and writes best.json; nothing where none can be named."""
    if best is None:
        return
    labels = dict(zip(map(id, rows), label_rows(rows), strict=True))
    timed = [row for row in rows if marks(row)["law"] == "lossless" and row.get("speedup")]
    lossless = max(timed, key=lambda row: row["speedup"], default=best.row)
    winners = [best.row, *([] if lossless is best.row else [lossless])]
    times = {labels[id(winner)]: _times_as_fast(winner, rows, labels) for winner in winners}
    record = {"budget": asdict(budget), "certain": best.is_certain, "setting": labels[id(best.row)], "row": best.row}
    record |= {"lossless": labels[id(lossless)] if timed else None, "times_as_fast": times}
    replace_text(folder / "best.json", encode(record, indent=2) + "\n")
    doubt = "" if best.is_certain else "; its 95 % bounds reach beyond"
    told = [f"{labels[id(row)]}, speed-up {_cell(row, 'speedup')}" for row in winners]
    print(f"fastest, lossless or with {budget}: {told[0]}{doubt}")
    if lossless is not best.row:
        print(f"fastest lossless one: {told[1]}")
    for name, ratios in times.items():
        others = ", ".join(f"{other} {ratio:.2f}" for other, ratio in ratios.items())
        print(f"{name} is so many times as fast as: {others}")


def _times_as_fast(winner: Row, rows: Sequence[Row], labels: Mapping[int, str]) -> dict[str, float]:
    """Quotients of speed-ups, each of which was timed in turn with plain decoding, by the other setting's label."""
    others = (row for row in rows if row is not winner and row.get("speedup"))
    return {labels[id(row)]: winner["speedup"] / row["speedup"] for row in others}
