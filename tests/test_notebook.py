"""The notebook: stored without outputs, and its cells run in order on shipped weights."""

import json
import re

import pytest
from support.paths import ROOT

PAGES = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells_of(page, kind):
    return [cell for cell in json.loads(page.read_text())["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_is_stored_as_it_is_written(page):
    """Catches outputs and pictures in the repository, code that is none, and links that lead nowhere."""
    assert [cell for cell in cells_of(page, "code") if cell["outputs"] or cell["execution_count"]] == []
    for cell in cells_of(page, "code"):
        compile("".join(cell["source"]), page.name, "exec")
    links = re.findall(r"\]\(([^)]+)\)", "".join("".join(cell["source"]) for cell in cells_of(page, "markdown")))
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(page, monkeypatch, capsys):
    """Catches a call of the Python interface that has changed, and a lossless method whose tokens differ."""
    monkeypatch.chdir(ROOT)
    exec(compile("\n\n".join("".join(cell["source"]) for cell in cells_of(page, "code")), page.name, "exec"), {})
    rates = [float(rate) for rate in re.findall(r"(\d\.\d\d)(?: tokens)? per pass", capsys.readouterr().out)]
    assert len(rates) == 6
    assert min(rates) > 1
