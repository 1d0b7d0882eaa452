"""Figures of an evaluation: speed against quality with confidence bars, and a grid of the same prompts by setting."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
from PIL.Image import Image

from lantern.errors import is_number
from lantern.evaluation.rows import Row, is_baseline
from lantern.figures import Figure, figures

INK, BASELINE, METHOD, FRONT = "#222222", "#888888", "#1f6fb4", "#b9d3ea"
PALE = 0.35  # of rows that are not ranked
ROOM = 0.06  # beside the outermost points, as a share of their distance
UNUSED = 0.1  # of an axis on which all values are 0, those of lossless methods alone


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
        look = {"fmt": "o", "color": colour, "mfc": colour if row.get("lossless") else "white", "ms": MARKER}
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
    low, high = min(values), max(values) if any(values) else UNUSED
    span = high - low or abs(high)
    low, high = max(min([low, *ends]), low - span / 2), min(max([high, *ends]), high + span / 2)
    return low - ROOM * span, high + ROOM * span


MARKER = 5  # diameter of a point, in typographic points as the places of its label
PLACES = [(across, rise) for rise in (5, -11, 16, -22, 27, -33, 38, -44, 49, -55) for across in (6, -6)]


def _annotate(axes, points: Sequence[tuple[float, float, str]]) -> None:
    """A label beside each point that covers no point and no other label; a line to one that is further away."""
    axes.figure.canvas.draw()  # fixes the scale of the label boxes
    radius = MARKER / 2 * axes.figure.dpi / 72
    middles = [axes.transData.transform((x, y)) for x, y, _ in points]
    frame, taken = axes.get_window_extent().extents, [np.concatenate([at - radius, at + radius]) for at in middles]
    for x, y, text in points:
        look = {"textcoords": "offset points", "fontsize": 8, "color": INK, "parse_math": False}
        label = axes.annotate(text, (x, y), (0, 0), **look)
        place = _settle(label, frame, taken)
        if place not in PLACES[:4]:
            line = {"arrowstyle": "-", "lw": 0.5, "color": BASELINE, "shrinkA": 0, "shrinkB": MARKER / 2}
            axes.annotate("", (x, y), place, textcoords="offset points", arrowprops=line)


def _settle(label, frame: np.ndarray, taken: list[np.ndarray]) -> tuple[int, int]:
    """Moves a label to the first of PLACES where it is within the frame and covers no box that is taken, or to where it
    hides least. Boxes are [left, bottom, right, top] in pixels."""

    def hidden(place: tuple[int, int]) -> float:
        label.set(position=place, ha="left" if place[0] > 0 else "right")
        box = label.get_window_extent().extents
        overlaps = [np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2]) for other in (box, frame, *taken)]
        whole, inside, *covered = (overlap.clip(0).prod() for overlap in overlaps)
        return whole - inside + sum(covered)

    place = min(PLACES, key=hidden)
    hidden(place)  # moves it there again
    taken.append(label.get_window_extent().extents)
    return place


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
