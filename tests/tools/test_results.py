"""Tables of the docs are what the kept rows say, and a stopped measurement of them goes on where it stopped."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.configs import composed
from support.paths import ROOT

from tools.markdown import split_page
from tools.results import Table, load_tables, measure, render, rows_of, write_pages

DOCS = ROOT / "docs"
TABLES = load_tables(DOCS)
COLUMNS = ["tokens_per_step", "speedup", "round", "overhead", "output_tv", "frechet_diff", "retimed", "lossless"]
TABLE = Table("small", ["page.md"], ["speed.num_prompts=2"], COLUMNS, {"plain": ["drafter=none"], "`jacobi`": ["+a=1"]})
PAGE = "above\n<!-- table small -->\nold\n<!-- end of table small -->\nbelow\n"


def row() -> dict:
    return {
        "machine": "a processor", "dtype": "float32", "date": "2031-02-03", "revision": "abc", "lossless": True,
        "retimed": 1,
        "tokens_per_step": 3.336, "speedup": 2.094, "speedup_low": 1.94, "speedup_high": 2.27, "draft_ms": 0.21,
        "verify_ms": 4.9, "accept_ms": 0.5, "overhead": 0.12, "output_tv": None,
        "frechet_diff": -0.016, "frechet_diff_low": -0.035, "frechet_diff_high": 0.004,
    }  # fmt: skip


class Runs:
    """Remembers what was measured and what its folders held before; is stopped in the call after the last allowed."""

    def __init__(self, allowed: int = 99) -> None:
        self.allowed, self.made, self.seen = allowed, [], []

    def __call__(self, settings, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.seen.append(sorted(path.name for path in folder.iterdir()))
        if len(self.made) == self.allowed:
            (folder / "prompts.jsonl").touch()
            raise KeyboardInterrupt
        self.made.append(list(settings))
        (folder / "finished.json").touch()
        return row()


@pytest.fixture
def docs(tmp_path) -> Path:
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path


@pytest.mark.parametrize("name", TABLES)
def test_a_page_holds_what_the_kept_rows_say(name):
    """Catches a figure that was typed or left behind when its row was measured again, and a link that leads nowhere."""
    table = TABLES[name]
    for page in table.pages:
        _, within, _ = split_page((DOCS / page).read_text(), name)
        assert within == render(table, rows_of(table, DOCS), page)
        assert all((DOCS / page).parent.joinpath(link).is_file() for link in re.findall(r"\]\((.*?)\)", within))


@pytest.mark.parametrize("page", ["results.md", "field.md"])
def test_every_table_is_written_by_the_command(page):
    """Catches a table that is typed, and rows of a table that no page holds."""
    text = (DOCS / page).read_text()
    for name, table in TABLES.items():
        if page in table.pages:
            before, _, after = split_page(text, name)
            text = before + after
    assert "\n|" not in text
    assert {path.stem for path in (DOCS / "rows").glob("*.jsonl")} <= set(TABLES)


LONG = [pytest.param(name, marks=pytest.mark.full) for name in TABLES if name != "headline"]


@pytest.mark.parametrize("name", ["headline", *LONG])
def test_every_row_is_a_command_that_composes(name):
    """Catches a method or setting that was renamed, which a run of hours would meet at its end."""
    for label in TABLES[name].rows:
        cfg = composed("evaluate", *TABLES[name].settings(label))
        assert f"speed.num_prompts={cfg.speed.num_prompts}" in TABLES[name].shared


def test_a_stopped_measurement_goes_on_and_ends_with_the_whole_table(docs):
    """Catches a row that is kept late, or measured twice, and a stopped run that begins again."""
    first, second = Runs(1), Runs()
    with pytest.raises(KeyboardInterrupt):
        measure(TABLE, docs, docs, first)
    assert "1 of 2 rows are missing" in (docs / "page.md").read_text()
    measure(TABLE, docs, docs, second)
    assert first.made + second.made == [["drafter=none", "speed.num_prompts=2"], ["+a=1", "speed.num_prompts=2"]]
    assert second.seen == [["prompts.jsonl"]]  # the stopped run goes on
    text = (docs / "page.md").read_text()
    assert text.startswith("above\n<!-- table small -->\nWritten by `make results TABLE=small`")
    assert text.endswith("<!-- end of table small -->\nbelow\n")
    assert "| `jacobi` | 3.34 | 2.09 [1.94, 2.27] | 0.2 + 4.9 + 0.5 | 12% | - | " in text
    assert "| -0.016 [-0.035, 0.004] | 1 | yes |\n" in text


def test_a_row_of_a_gpu_has_the_whole_round_alone():
    """Catches the host's times, which say nothing of a GPU, printed as parts of a round."""
    parts = dict.fromkeys(("draft_ms", "verify_ms", "accept_ms", "overhead"))
    on_gpu = row() | parts | {"round_ms": 3.25, "label": "plain", "settings": TABLE.settings("plain")}
    assert "| 2.09 [1.94, 2.27] | 3.2 | - |" in render(TABLE, [on_gpu], "page.md")


def test_a_row_is_measured_again_where_its_command_has_changed_or_it_was_deleted(docs):
    """Catches a figure of another setting under a new label's command, and a finished run folder that is read back."""
    measure(TABLE, docs, docs, Runs())
    other, runs = replace(TABLE, rows=TABLE.rows | {"`jacobi`": ["+a=2"]}), Runs()
    write_pages(other, docs)
    assert "1 of 2 rows are missing" in (docs / "page.md").read_text()
    measure(other, docs, docs, runs)
    assert runs.made == [["+a=2", "speed.num_prompts=2"]]
    assert [line["settings"][0] for line in rows_of(other, docs)] == ["drafter=none", "+a=1", "+a=2"]
    assert (docs / "page.md").read_text().count("`jacobi`") == 1
    folders = list((docs / "small").iterdir())
    (docs / "rows" / "small.jsonl").unlink()
    measure(other, docs, docs, again := Runs())
    assert len(folders) == 3
    assert again.seen == [[], []]
