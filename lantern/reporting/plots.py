"""Figures of an evaluation: speed against quality with confidence bars, and a grid of the same prompts by setting."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

from PIL.Image import Image

from lantern.errors import is_number
from lantern.evaluation.rows import Row, is_baseline
from lantern.figures import Figure, figures

INK, BASELINE, METHOD, FRONT = "#222222", "#888888", "#1f6fb4", "#b9d3ea"
PALE = 0.35  # of rows that are not ranked
ROOM = 0.06  # beside the outermost points, as a share of their distance


def load_pyplot():
    """Matplotlib without a window, imported at first use."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def draw_pareto(rows: Sequence[Row], labels: Sequence[str], path: str | Path) -> Path | None:
    """Speed-up against the prices that are plotted, such as output TV, as far as measured, side by side: a labelled
    point a row with 95 % bars, filled if lossless, pale if not ranked; the Pareto front of the ranked rows as a line.
    Plain decoding, the reference, is in every panel. None where nothing was measured."""
    found = [(figure, _points_of(rows, labels, figure)) for figure in figures(plotted=True)]
    panels = [(figure, points) for figure, points in found if not all(is_baseline(row) for row, _ in points)]
    if not panels:
        return None
    drawing, places = load_pyplot().subplots(1, len(panels), figsize=(7.2 * len(panels), 4.6), dpi=130, squeeze=False)
    for axes, (figure, points) in zip(places[0], panels, strict=True):
        _draw_points(axes, points, figure)
    return save_figure(drawing, path)


def _points_of(rows: Sequence[Row], labels: Sequence[str], figure: Figure) -> list[tuple[Row, str]]:
    """Those timed and judged. A metric of other numbers of images does not compare: those of the most common stay."""
    points = [(priced(row, figure), label) for row, label in zip(rows, labels, strict=True)]
    points = [(row, label) for row, label in points if _has_finite(row, "speedup", figure.key)]
    if figure.kind != "images":
        return points
    counts = Counter(row.get("num_images") or 0 for row, _ in points if not is_baseline(row))
    most = max(counts, key=lambda number: (counts[number], number), default=0)
    return [(row, label) for row, label in points if (row.get("num_images") or 0) == most]


def priced(row: Row, figure: Figure) -> Row:
    """Plain decoding and lossless methods lose nothing of its law, whatever an estimate says that has a floor."""
    keeps = figure.kind == "law" and (is_baseline(row) or row.get("lossless"))
    return row | dict.fromkeys(figure.keys) | {figure.key: 0.0} if keeps else row


def _draw_points(axes, points: Sequence[tuple[Row, str]], figure: Figure) -> None:
    price, rows = figure.key, [row for row, _ in points]
    front = pareto_front(rows, price)
    axes.plot([row["speedup"] for row in front], [row[price] for row in front], color=FRONT, lw=3, zorder=1)
    for row in rows:
        colour, alpha = BASELINE if is_baseline(row) else METHOD, 1.0 if row.get("ranked", True) else PALE
        bars = {"xerr": _bars(row, "speedup"), "yerr": _bars(row, price)}
        look = {"fmt": "o", "color": colour, "mfc": colour if row.get("lossless") else "white", "ms": 5}
        axes.errorbar(row["speedup"], row[price], **bars, **look, lw=1, capsize=2, zorder=2, alpha=alpha)
    pale = "" if all(row.get("ranked", True) for row in rows) else "\npale: not ranked, plain decoding timed otherwise"
    zero, judged = "; lossless: 0" if figure.kind == "law" else "", rows[0].get("num_images")
    images = f", {judged} images" if figure.kind == "images" and judged else ""
    axes.set(xlim=limits_of(rows, "speedup"), ylim=limits_of(rows, price))
    axes.set_xlabel(f"speed-up over plain AR decoding (right is faster; filled: lossless){pale}")
    axes.set_ylabel(f"{figure.title}{images} (down is better{zero})")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, lw=0.5)
    _annotate(axes, [(row["speedup"], row[price], label) for row, label in points])


def limits_of(rows: Sequence[Row], key: str) -> tuple[float, float]:
    """The ends of an axis: the values set it, and bounds near them; wider bounds leave the plot."""
    values = [row[key] for row in rows]
    ends = [row[f"{key}{end}"] for row in rows for end in ("_low", "_high") if _has_finite(row, f"{key}{end}")]
    low, high = min(values), max(values)
    span = high - low or abs(high) or 1.0
    low, high = max(min([low, *ends]), low - span / 2), min(max([high, *ends]), high + span / 2)
    return low - ROOM * span, high + ROOM * span


def _annotate(axes, points: Sequence[tuple[float, float, str]]) -> None:
    """A label beside each point, within the axes, moved up or down until it covers no earlier one."""
    axes.figure.canvas.draw()  # fixes the scale of the label boxes
    edge = axes.get_window_extent().x1
    placed = []
    for x, y, text in points:
        for rise in (5, -11, 16, -22, 27, -33):
            look = {"textcoords": "offset points", "fontsize": 8, "color": INK, "parse_math": False}
            label = axes.annotate(text, (x, y), (6, rise), **look)
            box = label.get_window_extent()
            if box.x1 > edge:
                label.set(ha="right", position=(-6, rise))
                box = label.get_window_extent()
            if not any(box.overlaps(other) for other in placed):
                break
            label.remove()
        else:
            axes.add_artist(label)
        placed.append(box)


def pareto_front(rows: Sequence[Row], price: str) -> list[Row]:
    """The ranked rows that no other one exceeds in both speed-up and price, slowest first."""
    front, ranked = [], [row for row in rows if row.get("ranked", True)]
    for row in sorted(ranked, key=lambda row: (-row["speedup"], row[price])):
        if not front or row[price] < front[-1][price]:
            front.append(row)
    return front[::-1]


def draw_grid(columns: Mapping[str, Sequence[Image]], prompts: Sequence[str], path: str | Path) -> Path:
    """The same prompts down, the settings across: columns maps a setting to its images."""
    height, width = len(prompts), len(columns)
    size, look = (1.25 * width + 1.0, 1.25 * height + 0.3), {"fontsize": 7, "color": INK, "parse_math": False}
    figure, axes = load_pyplot().subplots(height, width, figsize=size, dpi=130, squeeze=False)
    for across, (label, images) in enumerate(columns.items()):
        axes[0, across].set_title(fill(label, 16), **look)
        for down in range(height):
            axes[down, across].imshow(images[down])
            axes[down, across].set(xticks=[], yticks=[])
    for down, prompt in enumerate(prompts):
        axes[down, 0].set_ylabel(fill(prompt, 14), rotation=0, ha="right", va="center", **look)
    return save_figure(figure, path)


def _has_finite(row: Row, *keys: str) -> bool:
    return all(is_number(row.get(key)) and math.isfinite(row[key]) for key in keys)


def _bars(row: Row, key: str) -> list[list[float]] | None:
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    return None if None in (low, high) else [[max(0.0, row[key] - low)], [max(0.0, high - row[key])]]


def save_figure(figure, path: str | Path) -> Path:
    """Writes a figure and frees it. Returns the path."""
    figure.savefig(path, bbox_inches="tight")
    load_pyplot().close(figure)
    return Path(path)
