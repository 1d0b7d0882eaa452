"""Tables of the docs are what the kept rows say, and a stopped measurement of them goes on where it stopped."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.configs import composed
from support.paths import ROOT
from support.tiny_weights import write_tiny_weights

from lantern.cli.run_setting import run_setting
from lantern.evaluation.rows import read_rows
from tools import result_pages, results
from tools.markdown import split_page

DOCS = ROOT / "docs"
TABLES = result_pages.load_tables(DOCS)
COLUMNS = ["tokens_per_step", "speedup", "round", "overhead", "output_tv", "frechet_diff", "retimed", "lossless"]
ROWS = {"plain": ["drafter=none"], "`jacobi`": ["+a=1"]}
TABLE = result_pages.Table("small", ["page.md"], ["speed.num_prompts=2"], COLUMNS, ROWS)
PAGE = "above\n<!-- table small -->\nold\n<!-- end of table small -->\nbelow\n"


def row() -> dict:
    return {
        "model": "llamagen", "machine": "a processor", "dtype": "float32", "date": "2031-02-03",
        "revision": "abc", "lossless": True, "num_timed": 2, "retimed": 1, "compile": False, "warnings": None,
        "baseline_latency_s": 0.256, "target_forwards": 51, "plain_verify_ms": 1.4, "plain_forwards": 255,
        "tokens_per_step": 3.336, "speedup": 2.094, "speedup_low": 1.94, "speedup_high": 2.27, "draft_ms": 0.21,
        "verify_ms": 4.9, "accept_ms": 0.5, "overhead": 0.12, "output_tv": None,
        "frechet_diff": -0.016, "frechet_diff_low": -0.035, "frechet_diff_high": 0.004,
    }  # fmt: skip


def now(settings) -> dict:
    """In place of hashes_of, which composes: these settings are not evaluate.py's."""
    return {"preset": str(settings[0]), "protocol": "p", "weights": "w", "code": "c"}


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
        assert within == result_pages.render(table, result_pages.rows_of(table, DOCS), page)
        assert all((DOCS / page).parent.joinpath(link).exists() for link in re.findall(r"\]\((.*?)\)", within))


def test_the_board_ranks_what_its_tables_hold(docs):
    """Catches a method that is left out or listed twice, a lossy one among the lossless, and a speed-up over one easy
    prompt above one over two."""
    _, within, _ = split_page((DOCS / "lab" / "field.md").read_text(), "board")
    assert within == result_pages.render_board(TABLES, DOCS)
    rows = [settings for name in result_pages.BOARD for settings in TABLES[name].rows.values()]
    presets = [settings for settings in rows if settings[0][:8] == "+method="]
    listed = [line.split("`")[1].split() for line in within.splitlines() if "`+method=" in line]
    assert sorted(map(tuple, listed)) == sorted(set(map(tuple, presets)))
    own = {"slow": ["+method=a"], "fast": ["+method=b"], "lossy": ["+method=c"], "no preset": ["drafter=none"]}
    tables = {name: replace(TABLE, name=name, pages=[], rows={"again": ["+method=a"]}) for name in result_pages.BOARD}
    tables[result_pages.BOARD[0]] = replace(tables[result_pages.BOARD[0]], rows=own)
    easy = {"rows": {"easy": ["+method=d"]}, "shared": ["speed.num_prompts=1"]}
    tables[result_pages.BOARD[1]] = replace(tables[result_pages.BOARD[1]], **easy)
    changed = {"fast": {"speedup": 2.5}, "lossy": {"speedup": 3.5, "lossless": False, "output_tv": 0.1}}
    for table in tables.values():
        for label in table.rows:
            results.keep(
                table, docs, label, row() | {"speedup": 9 if label == "easy" else 1.5} | changed.get(label, {})
            )
    lines = [line for line in result_pages.render_board(tables, docs).splitlines() if "`+method=" in line]
    assert [line.split("`")[1][-1] for line in lines] == ["b", "a", "d", "c"]
    assert [line.split(" | ")[0] for line in lines] == ["| 1", "| 2", "| 1", "| 1"]
    assert ["| lossless |" in line for line in lines] == [True, True, True, False]


@pytest.mark.parametrize("page", ["lab/results.md", "lab/field.md"])
def test_every_table_is_written_by_the_command(page):
    """Catches a table that is typed, and rows of a table that no page holds."""
    text = (DOCS / page).read_text()
    written = ["board"] if page == "lab/field.md" else ["protocols"]
    for name in [*written, *(name for name, table in TABLES.items() if page in table.pages)]:
        before, _, after = split_page(text, name)
        text = before + after
    assert "\n|" not in text
    assert {path.stem for path in (DOCS / "rows").glob("*.jsonl")} <= set(TABLES)


LONG = [pytest.param(name, marks=pytest.mark.full) for name in TABLES if name != "headline"]


def test_a_stopped_measurement_goes_on_and_ends_with_the_whole_table(docs):
    """Catches a row that is kept late, or measured twice, and a stopped run that begins again."""
    first, second = Runs(1), Runs()
    with pytest.raises(KeyboardInterrupt):
        results.measure(TABLE, docs, docs, first, now)
    assert "1 of 2 rows are missing" in (docs / "page.md").read_text()
    results.measure(TABLE, docs, docs, second, now)
    assert first.made + second.made == [["drafter=none", "speed.num_prompts=2"], ["+a=1", "speed.num_prompts=2"]]
    assert second.seen == [["prompts.jsonl"]]  # the stopped run goes on
    text = (docs / "page.md").read_text()
    assert text.startswith("above\n<!-- table small -->\nWritten by `make results TABLE=small`")
    assert text.endswith("<!-- end of table small -->\nbelow\n")
    assert "| `jacobi` | 3.34 | 2.09 [1.94, 2.27] | 0.2 + 4.9 + 0.5 | 0.12 | - | " in text
    assert "| -0.016 [-0.035, 0.004] | 1 | yes |\n" in text


def test_a_row_of_a_gpu_has_the_whole_round_alone():
    """Catches the host's times, which say nothing of a GPU, printed as parts of a round."""
    parts = dict.fromkeys(("draft_ms", "verify_ms", "accept_ms", "overhead"))
    on_gpu = row() | parts | {"round_ms": 3.25, "label": "plain", "settings": TABLE.settings("plain")}
    assert "| 2.09 [1.94, 2.27] | 3.2 | - |" in result_pages.render(TABLE, [on_gpu], "page.md")


def test_a_row_is_measured_again_where_its_command_has_changed_or_it_was_deleted(docs):
    """Catches a figure of another setting under a new label's command, and a finished run folder that is read back."""
    results.measure(TABLE, docs, docs, Runs(), now)
    other, runs = replace(TABLE, rows=TABLE.rows | {"`jacobi`": ["+a=2"]}), Runs()
    result_pages.write_pages(other, docs)
    assert "1 of 2 rows are missing" in (docs / "page.md").read_text()
    results.measure(other, docs, docs, runs, now)
    assert runs.made == [["+a=2", "speed.num_prompts=2"]]
    assert [line["settings"][0] for line in result_pages.rows_of(other, docs)] == ["drafter=none", "+a=1", "+a=2"]
    assert (docs / "page.md").read_text().count("`jacobi`") == 1
    folders = list((docs / "small").iterdir())
    (docs / "rows" / "small.jsonl").unlink()
    results.measure(other, docs, docs, again := Runs(), now)
    assert len(folders) == 3
    assert again.seen == [[], []]


def test_a_row_of_another_preset_or_other_weights_is_measured_again_and_one_of_other_code_is_named(docs, capsys):
    """Catches rows that outlive what made them: settings and label are the same."""
    results.measure(TABLE, docs, docs, Runs(), now)
    results.measure(TABLE, docs, docs, unchanged := Runs(), now)
    assert unchanged.made == []
    assert "earlier code" not in capsys.readouterr().out
    results.measure(TABLE, docs, docs, of_code := Runs(), lambda settings: now(settings) | {"code": "other"})
    assert of_code.made == []
    assert "small, `jacobi`: of earlier code" in capsys.readouterr().out
    for changed in ("preset", "protocol", "weights"):
        results.measure(TABLE, docs, docs, again := Runs(), lambda given, name=changed: now(given) | {name: "other"})
        assert [made[0] for made in again.made] == ["drafter=none", "+a=1"]


def test_tables_share_the_rows_of_one_command(docs):
    """Catches one method with two speed-ups: measured for each table that names it."""
    results.measure(TABLE, docs, docs, Runs(), now)
    other = replace(TABLE, name="other", rows={"again": ["+a=1"], "new": ["+a=3"]})
    (docs / "page.md").write_text(PAGE.replace("small", "other"))
    results.measure(other, docs, docs, runs := Runs(), now)
    assert runs.made == [["+a=3", "speed.num_prompts=2"]]
    assert [*other.kept(result_pages.rows_of(other, docs))] == ["again", "new"]


def test_timed_rows_are_measured_again_and_a_stopped_run_goes_on(docs):
    """Catches a count of earlier code that passes as today's or as another method's, one that is made though its code
    is the same, rows of two models beside one plain decoding, a row timed twice, and what was before forgotten."""
    own = {"plain": ["drafter=none"], "jacobi": ["+method=jacobi"], "emoji": ["+method=jacobi", "model=emoji"]}
    table = replace(TABLE, rows=own, shared=["speed.num_prompts=2", "quality.num_images=0"])
    counted = {"output_tv": 0.1, "output_tv_low": 0.05, "output_tv_high": 0.2, "warnings": "of counts"}
    bare = {key: value for key, value in row().items() if key not in results.WRITTEN}  # as of before there were hashes
    for label in own:
        results.keep(table, docs, label, bare | counted | now(own[label]))
    asked = []

    def time(group):
        asked.append([settings[:-2] for settings, _, _ in group])
        return [bare | {"speedup": 3.0, "speedup_low": 2.9, "warnings": "of times"} for _ in group]

    def changed(settings):
        return now(settings) | ({"code": "d"} if "+method=jacobi" in settings else {})

    given = [table], docs, docs / "again"
    with pytest.raises(KeyboardInterrupt):
        results.measure_again(*given, Runs(0), time, changed)
    plain, jacobi, emoji = read_rows(docs / "rows" / "small.jsonl")
    assert [plain[key] for key in ("speedup", "output_tv", "warnings")] == [3.0, 0.1, "of times | of counts"]
    assert jacobi["speedup"] == 3.0
    assert jacobi["code"] == now(own["jacobi"])["code"]
    assert results.stale(emoji, now(own["emoji"])) == []
    assert results.stale(bare, now(own["emoji"])) == [*results.WRITTEN]
    again = results.measure_again(*given, counts := Runs(), time, changed)
    results.measure_again(*given, Runs(0), time, changed)
    assert asked == [[own["plain"], own["jacobi"]], [own["emoji"]]]
    assert counts.made == [table.settings("jacobi"), table.settings("emoji")]
    last = results.moved(again, docs).splitlines()[-1]
    assert last == "| small | plain | speed-up | 2.09 [1.94, 2.27] | 3.00 [2.90, 2.27] |"


def test_rows_are_timed_in_turn_with_one_plain_decoding_and_counted_later(tmp_path):
    """Catches a plain decoding for each row, and times that the row's own command does not find on record."""
    weights = write_tiny_weights(tmp_path / "weights")
    shared = [f"paths.weights={weights}", "dtype=float32", "device=cpu", "prompts=demo", "speed.num_prompts=2"]
    shared += ["speed.max_retimed=0"]
    own = [["drafter=none"], ["drafter=jacobi", "drafter.length=4"], ["tree=chain"]]
    asked = [([*one, *shared, "acceptance=exact"], "tiny", tmp_path / str(at)) for at, one in enumerate(own)]
    rows = results.time_together(asked)
    assert len({one["baseline_latency_s"] for one in rows}) == 1 < len({one["latency_s"] for one in rows}) == 3
    assert [len(read_rows(folder / "prompts.jsonl")) for *_, folder in asked] == [2, 4, 4]
    given = composed("evaluate", *asked[1][0], "quality.num_images=0", "tracking.mode=disabled")
    *_, row = run_setting(given, *asked[1][1:], None)
    assert [row[key] for key in ("speedup", "fingerprint")] == [rows[1][key] for key in ("speedup", "fingerprint")]
    assert row["output_tv"] is not None is rows[1]["output_tv"]


def test_every_table_has_as_many_prompts():
    """Catches methods that are compared on different prompts: windows commit 11 % more on the first 24 than on 8."""
    counts = {given for table in TABLES.values() for given in table.shared if given.endswith("_prompts=24")}
    assert counts == {"speed.num_prompts=24"}
    assert {result_pages.prompts_of({"settings": table.shared}).split()[0] for table in TABLES.values()} == {"24"}


def test_the_glossary_lists_today_s_figures():
    """Catches a figure that was added, renamed or explained anew in the code alone."""
    assert split_page((DOCS / "glossary.md").read_text(), "figures")[1] == result_pages.glossary()


def test_hashes_know_a_preset_by_what_it_composes_and_not_by_its_name(monkeypatch):
    """Catches a window of 14 that is kept as one of 31 because its method's name stayed."""
    plain = results.hashes_of(["+method=scd"])
    assert plain == results.hashes_of(["+method=scd", "drafter.length=31"])
    assert results.stale(plain, results.hashes_of(["+method=scd", "drafter.length=14"])) == ["preset"]
    assert results.stale(plain, results.hashes_of(["+method=scd", "paths.weights=/elsewhere"])) == ["weights"]
    assert results.stale(plain, results.hashes_of(["+method=scd", "batch_size=7"])) == ["protocol"]
    assert results.stale(plain, results.hashes_of(["+method=scd", "metrics.fidelity.num_references=7"])) == ["protocol"]
    monkeypatch.setattr("tools.results.load_prompts", lambda *_: ["another text"])
    assert results.stale(plain, results.hashes_of(["+method=scd"])) == ["protocol"]
    monkeypatch.undo()
    monkeypatch.setattr("tools.results.code_now", lambda: "other")
    assert results.stale(plain, results.hashes_of(["+method=scd"])) == ["code"]


@pytest.mark.parametrize("name", ["headline", *LONG])
def test_every_row_composes_and_no_kept_one_is_of_another_preset_or_other_weights(name):
    """Catches a method or setting that was renamed, which a run of hours would meet at its end, and a preset or weights
    that changed without their rows."""
    kept = TABLES[name].kept(result_pages.rows_of(TABLES[name], DOCS))
    found = {label: results.hashes_of(TABLES[name].settings(label)) for label in TABLES[name].rows}
    others = {label: results.stale(row, found[label]) for label, row in kept.items()}
    assert {label: found for label, found in others.items() if set(found) - {"code"}} == {}


def test_a_table_says_what_would_mislead(docs):
    """Catches a table that hides its rows' warnings, another state of the machine, or what an estimate is made of."""
    slow = {"baseline_latency_s": 0.512, "warnings": "0.3 cores busy | wide", "output_tv": 0.1, "output_tv_floor": 0.02}
    slow |= {"output_tv_low": 0.05, "output_tv_high": 0.2, "output_tv_positions": 200}
    table = replace(TABLE, columns=["speedup", "plain_ms", "pass", "output_tv", "output_tv_floor"])
    label, settings = "`jacobi`", table.settings("`jacobi`")
    rows = [row() | {"label": "plain", "settings": table.settings("plain"), "warnings": "wide"}]
    text = result_pages.render(table, [*rows, row() | slow | {"label": label, "settings": settings}], "page.md")
    assert "| plain (2) | 2.09 [1.94, 2.27] | 1.00 | 3.5 |" in text.replace("plain (1)", "plain (2)")
    assert "| 0.10 [0.05, 0.20] | 0.02" in text
    assert "0.26 to 0.51 s an image" in text
    assert "200 positions" in text
    assert "wide." in text
    other = rows[0] | {"label": label, "settings": settings, "baseline_latency_s": 0.28}
    assert "the machine changed" not in " ".join(result_pages.render(table, [*rows, other], "page.md").split())
