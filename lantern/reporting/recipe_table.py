"""The table of a comparison of drafter recipes: a row for each recipe, over its seeds, with 95 % bounds."""

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from lantern.errors import LanternError
from lantern.evaluation.rows import Row
from lantern.metrics.intervals import Interval, student_95
from lantern.reporting.columns import BOUNDS
from lantern.reporting.common_baseline import keys_of
from lantern.reporting.recipe_runs import DRAFT_MS, OTHERS, TOKENS
from lantern.reporting.table import bounds_of


def over_seeds(values: Sequence[float], groups: Sequence[Sequence[float]]) -> Interval:
    """The mean with Student's t bounds. The spread is pooled over groups of seeds, each around its own mean: that of
    two seeds alone says next to nothing. nan bounds where no group has two."""
    mean, freedom = float(np.mean(values)), sum(len(group) - 1 for group in groups)
    if not freedom:
        return Interval(mean, float("nan"), float("nan"))
    spread = (sum(np.square(np.subtract(group, np.mean(group))).sum() for group in groups) / freedom) ** 0.5
    margin = student_95(freedom) * spread / len(values) ** 0.5
    return Interval(mean, mean - margin, mean + margin)


def recipe_rows(runs: Sequence[Row], ranked_by: str, reference: str) -> list[Row]:
    """Means over seeds, the recipe with the highest lower bound of `ranked_by` first. Bounds are those of seeds, of
    prompts where every recipe has one seed. gain: its difference to the reference recipe, paired by seed."""
    if unknown := [run["recipe"] for run in runs if ranked_by not in run]:
        measured = ", ".join(key for key in runs[0] if not key.endswith(BOUNDS))
        raise LanternError(f"sweep.ranked_by={ranked_by} was not measured of {unknown[0]}; give one of {measured}")
    by_recipe: dict[str, list[Row]] = {}
    for run in runs:
        by_recipe.setdefault(run["recipe"], []).append(run)
    rows = [_over_seeds(group, list(by_recipe.values())) for group in by_recipe.values()]
    for row in rows:
        if row["recipe"] != reference and reference in by_recipe:
            row |= _gain(by_recipe[row["recipe"]], by_recipe[reference], ranked_by)
    return sorted(rows, key=lambda row: (row.get(f"{ranked_by}_low", -inf), row[ranked_by]), reverse=True)


def _over_seeds(group: Sequence[Row], groups: Sequence[Sequence[Row]]) -> Row:
    row: Row = {"recipe": group[0]["recipe"], "seeds": len(group)}
    figures = [key for key in group[0] if key not in ("recipe", "seed") and all(key in run for run in group)]
    if all(len(one) == 1 for one in groups):
        return row | {key: group[0][key] for key in figures}
    for key in figures:
        if not key.endswith(BOUNDS):
            known = [values for one in groups if (values := [run[key] for run in one if key in run])]
            row |= over_seeds([run[key] for run in group], known).keys(key)
    return row


def _gain(own: Sequence[Row], reference: Sequence[Row], key: str) -> Row:
    known = {run["seed"]: run[key] for run in reference}
    differences = [run[key] - known[run["seed"]] for run in own if run["seed"] in known]
    if not differences:
        return {}
    return keys_of(over_seeds(differences, [differences]), "gain")


def columns(rows: Sequence[Row], reference: str, depths: Sequence[int]) -> dict[str, str]:
    """Titles by key: overlap and agreement at some depths, and all other figures that a row has."""
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if not key.endswith(BOUNDS)]
    titles = {"recipe": "recipe", "seeds": "seeds"}
    titles |= {f"alpha_{d}": f"overlap {d}" for d in depths} | {f"agreement_{d}": f"agreement {d}" for d in depths}
    titles |= {"sim_accept_len": "length, ratio", "sim_agree_len": "length, shared noise"}
    titles |= {key: f"tokens/step {key.removeprefix(TOKENS)}" for key in keys if key.startswith(TOKENS)}
    titles |= {"gain": f"over {reference}", "step_s": "s/step", "steps": "steps", "parameters": "parameters"}
    titles |= {key: f"draft ms {key.removeprefix(DRAFT_MS)}" for key in keys if key.startswith(DRAFT_MS)}
    titles |= {"other_cores": "cores of others, training"}
    titles |= {key: f"… {key.removeprefix(OTHERS)}" for key in keys if key.startswith(OTHERS)}
    return {key: title for key, title in titles.items() if key in keys}


def text_of(row: Row, key: str) -> str:
    """A figure as shown, decoded tokens and the gain with their bounds; "-" for none."""
    value = row.get(key)
    if value is None or isinstance(value, str):
        return value or "-"
    shown = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return shown + (bounds_of(row, key) if key.startswith((TOKENS, "gain")) else "")


def format_recipes(rows: Sequence[Row], titles: Mapping[str, str]) -> str:
    """The rows as an aligned text table, recipes across and figures down: they have more figures than a line holds."""
    lines = [[title, *(text_of(row, key) for row in rows)] for key, title in titles.items()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in aligned)
