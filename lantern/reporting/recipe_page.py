"""recipes.html: the table and the curves of a comparison of drafter recipes, one file that needs no network."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from lantern.evaluation.rows import Row
from lantern.reporting.recipe_table import text_of
from lantern.runtime.files import replace_text

STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap }
th, td { border-bottom: 1px solid #8884; padding: .25rem .75rem .25rem 0; text-align: left }
thead th { vertical-align: bottom; white-space: normal; min-width: 5rem }
img { background: white; max-width: 100% }
"""


def write_recipe_page(
    path: Path, title: str, notes: Sequence[str], rows: Sequence[Row], titles: Mapping[str, str], curves: Path
) -> None:
    """titles: of the columns, by key; curves: a PNG, which the page holds."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in titles.values())
    body = "".join(f"<tr>{_cells(row, list(titles))}</tr>\n" for row in rows)
    said = "".join(f"<p>{escape(note)}</p>\n" for note in notes)
    picture = b64encode(curves.read_bytes()).decode()
    page = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head>
<body><h1>{escape(title)}</h1>
{said}<div class="wide" tabindex="0" role="region" aria-label="Table of recipes">
<table><thead><tr>{head}</tr></thead><tbody>
{body}</tbody></table></div>
<h2>Curves</h2>
<img alt="Simulated lengths of every recipe over training time and over steps" src="data:image/png;base64,{picture}">
</body></html>
"""
    replace_text(path, page)


def _cells(row: Row, keys: Sequence[str]) -> str:
    name, *figures = (escape(text_of(row, key)) for key in keys)
    return f'<th scope="row">{name}</th>' + "".join(f"<td>{figure}</td>" for figure in figures)
