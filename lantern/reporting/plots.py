"""Figures of an evaluation: speed against quality with confidence bars, and a grid of the same prompts by setting."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

from torch import Tensor

from lantern.errors import is_number
from lantern.evaluation.rows import Row, is_baseline

INK, BASELINE, METHOD, FRONT = "#222222", "#888888", "#1f6fb4", "#b9d3ea"
PRICES = {"frechet": "Fréchet distance, {num_images} images", "output_tv": "output TV"}  # lower is better


def load_pyplot():
    """Matplotlib without a window, imported at first use."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def draw_pareto(rows: Sequence[Row], labels: Sequence[str], path: str | Path) -> Path | None:
    """Speed-up against Fréchet distance and against output TV, as far as measured, side by side: a labelled point a row
    with 95 % bars, filled if lossless; the Pareto front as a line. None where nothing was measured."""
    named = list(zip(rows, labels, strict=True))
    points = {price: [(row, label) for row, label in named if _has_finite(row, "speedup", price)] for price in PRICES}
    shown = [price for price in PRICES if any(not is_baseline(row) for row, _ in points[price])]
    if not shown:
        return None
    figure, panels = load_pyplot().subplots(1, len(shown), figsize=(7.2 * len(shown), 4.6), dpi=130, squeeze=False)
    for axes, price in zip(panels[0], shown, strict=True):
        _draw_points(axes, points[price], price)
    return save_figure(figure, path)


def _draw_points(axes, points: Sequence[tuple[Row, str]], price: str) -> None:
    front = pareto_front([row for row, _ in points], price)
    axes.plot([row["speedup"] for row in front], [row[price] for row in front], color=FRONT, lw=3, zorder=1)
    for row, _ in points:
        colour = BASELINE if is_baseline(row) else METHOD
        bars = {"xerr": _bars(row, "speedup"), "yerr": _bars(row, price)}
        look = {"fmt": "o", "color": colour, "mfc": colour if row.get("lossless") else "white", "ms": 5}
        axes.errorbar(row["speedup"], row[price], **bars, **look, lw=1, capsize=2, zorder=2)
    axes.set_xlabel("speed-up over plain AR decoding (right is faster; filled: lossless)")
    axes.set_ylabel(f"{PRICES[price].format(**points[0][0])} (down is better)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, lw=0.5)
    _annotate(axes, [(row["speedup"], row[price], label) for row, label in points])


def _annotate(axes, points: Sequence[tuple[float, float, str]]) -> None:
    """A label beside each point, moved up or down until it covers no earlier one."""
    axes.figure.canvas.draw()  # fixes the scale of the label boxes
    placed = []
    for x, y, text in points:
        for rise in (5, -11, 16, -22, 27, -33):
            look = {"textcoords": "offset points", "fontsize": 8, "color": INK, "parse_math": False}
            label = axes.annotate(text, (x, y), (6, rise), **look)
            box = label.get_window_extent()
            if not any(box.overlaps(other) for other in placed):
                break
            label.remove()
        else:
            axes.add_artist(label)
        placed.append(box)


def pareto_front(rows: Sequence[Row], price: str) -> list[Row]:
    """The rows that no other row exceeds in both speed-up and price, slowest first."""
    front = []
    for row in sorted(rows, key=lambda row: (-row["speedup"], row[price])):
        if not front or row[price] < front[-1][price]:
            front.append(row)
    return front[::-1]


def draw_grid(columns: Mapping[str, Tensor], prompts: Sequence[str], path: str | Path) -> Path:
    """The same prompts down, the settings across: columns maps a setting to images [N, 3, H, W] in [0, 1]."""
    height, width = len(prompts), len(columns)
    figure, axes = load_pyplot().subplots(
        height, width, figsize=(1.25 * width + 1.0, 1.25 * height + 0.3), dpi=130, squeeze=False
    )
    for across, (label, images) in enumerate(columns.items()):
        axes[0, across].set_title(fill(label, 16), fontsize=7, color=INK, parse_math=False)
        for down in range(height):
            axes[down, across].imshow(images[down].permute(1, 2, 0).cpu().numpy())
            axes[down, across].set_xticks([])
            axes[down, across].set_yticks([])
    for down, prompt in enumerate(prompts):
        axes[down, 0].set_ylabel(
            fill(prompt, 14), rotation=0, ha="right", va="center", fontsize=7, color=INK, parse_math=False
        )
    return save_figure(figure, path)


def _has_finite(row: Row, *keys: str) -> bool:
    return all(is_number(row.get(key)) and math.isfinite(row[key]) for key in keys)


def _bars(row: Row, key: str) -> list[list[float]] | None:
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    if low is None or high is None:
        return None
    return [[max(0.0, row[key] - low)], [max(0.0, high - row[key])]]


def save_figure(figure, path: str | Path) -> Path:
    """Writes a figure and frees it. Returns the path."""
    figure.savefig(path, bbox_inches="tight")
    load_pyplot().close(figure)
    return Path(path)
