"""The content of the page: rows, pictures, commands and provenance."""

import json
import shlex

import pytest
from support.made_sweep import PROMPTS, record_overrides
from support.pages import read_content

from lantern.evaluation.rows import SUMMARY, setting_id
from lantern.reporting.page.write import commands, write_page
from lantern.reporting.ranking import Budget, report_best
from lantern.reporting.table import warning_lines
from lantern.runtime.files import replace_text
from lantern.runtime.provenance import read_provenance


def test_a_page_is_one_file_that_names_no_address(sweep):
    page = (sweep / "report.html").read_text()
    assert "{{" not in page
    assert not any(word in page for word in ("https://", 'src="http', "@import", "<link"))


def test_what_was_written_into_a_page_can_be_read_back(sweep):
    content = read_content(sweep / "report.html")
    assert [prompt["text"] for prompt in content["prompts"]] == PROMPTS
    assert content["rows"][0]["label"] == "AR"
    assert [row["profile"]["nodes"] for row in content["rows"]] == [1, 2, 2, 2]
    assert len(json.loads((sweep / "profiles.json").read_text())) == 4
    noises = [row["noise"] for row in content["rows"]]
    assert noises == [noises[0]] * 3 + [None]
    assert all(len(pictures) == 3 for pictures in content["pictures"])
    assert all(shown["same"] for row in content["pictures"] for shown in row)  # the fake's tokens depend on seeds alone


def test_a_page_warns_as_the_terminal_does_and_shows_the_distance_that_few_images_give(tmp_path):
    """Catches a Fréchet distance that is mostly bias without a word, and no column of the one that is not."""
    row = {"drafter": "eagle", "acceptance": "lantern", "tree": "static", "frechet": 3.0, "kernel": 0.1, "seed": 7}
    rows = [row | {"delta": delta, "warnings": "the Fréchet distance is bias | other"} for delta in (0.1, 0.2)]
    write_page(tmp_path / "page.html", "page", rows, [], {})
    content = read_content(tmp_path / "page.html")
    assert content["warnings"] == warning_lines(rows) != []
    assert {column["key"] for column in content["columns"] if column["shown"]} == {"frechet", "kernel"}


def test_every_row_of_a_page_has_the_profile_of_its_own_setting_and_the_page_its_version(tmp_path):
    """Catches profiles read by their place instead of by their setting, and a page that nobody can cite."""
    rows = [{"drafter": "eagle", "acceptance": "lantern", "tree": "static", "delta": delta} for delta in (0.1, 0.2)]
    profiles = {setting_id(row): {"nodes": number} for number, row in enumerate(rows)}
    rows = [row | {"version": "9.1"} for row in rows]
    write_page(tmp_path / "page.html", "page", rows, [], dict(reversed(profiles.items())))
    content = read_content(tmp_path / "page.html")
    assert [row["profile"]["nodes"] for row in content["rows"]] == [0, 1]
    assert content["note"].endswith("Lantern 9.1.")


def test_a_page_tells_its_best_setting_as_the_terminal_does(tmp_path, capsys):
    """Catches a star beside the table's bounds, which a winner by chance has, too."""
    shared = {"drafter": "eagle", "acceptance": "exact", "tree": "t", "lossless": True, "speedup_high": 1.4}
    rows = [shared | {"speedup": 1.2, "speedup_low": low, "k": k} for k, low in enumerate((0.9, 1.02))]
    budget = Budget({})
    best = budget.best(rows)
    report_best(tmp_path, rows, budget, best)
    write_page(tmp_path / "page.html", "page", rows, [], {}, best, budget)
    line = read_content(tmp_path / "page.html")["best"]["line"]
    assert f": {line}\n" in capsys.readouterr().out
    assert line.startswith("k 1, speed-up 1.20 [")


@pytest.mark.parametrize(("overrides", "mode", "folder", "added"), [
    (["prompts=['a blue ring', \"$HOME's\"]", "drafter.checkpoint=${paths.weights}/drafter"], "RUN", None, []),
    (["+sweep=delta", "acceptance.delta=0.03"], "MULTIRUN", None, ["hydra.mode=RUN"]),
    (["--config-dir", "my_conf", "acceptance=mine"], "RUN", "my_conf", []),
])  # fmt: skip
def test_a_command_reads_back_as_the_recorded_overrides(tmp_path, overrides, mode, folder, added):
    """Catches quotes that a shell removes, a ${…} that only the run can resolve, and a point that is a whole sweep."""
    given = overrides[2:] if folder else overrides
    record_overrides(tmp_path / "run", given, mode, tmp_path / folder if folder else None)
    assert shlex.split(read_provenance(tmp_path / "run")["command"]) == ["python", "evaluate.py", *overrides, *added]


def test_a_wheel_has_a_command_of_its_own(tmp_path, monkeypatch):
    """Catches evaluate.py where there is none."""
    monkeypatch.setattr("lantern.runtime.home.CHECKOUT", tmp_path)
    record_overrides(tmp_path / "run", ["seed=1"], "RUN")
    assert read_provenance(tmp_path / "run")["command"] == "lantern-evaluate seed=1"


def test_commands_belong_to_settings_and_not_to_places(tmp_path):
    """A setting found by two points has the later one's command, a point without a record none."""
    shared = {"model": "m", "drafter": "none", "tree": "none", "acceptance": "exact"}
    own = [shared | {"drafter": "eagle", "delta": delta} for delta in (0.1, 0.2, 0.3)]
    for number, row in enumerate(own):
        replace_text(tmp_path / str(number) / SUMMARY, json.dumps({"AR": shared, "method": row}))
    for number in (0, 1):
        record_overrides(tmp_path / str(number), [f"seed={number}"], "RUN")
    found = commands([tmp_path / str(number) for number in range(3)])
    ends = {key: command[-1] for key, command in found.items()}
    assert ends == {setting_id(shared): "1", setting_id(own[0]): "0", setting_id(own[1]): "1"}
