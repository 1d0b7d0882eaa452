"""The content of the page: rows, pictures, commands and provenance."""

import json
import shlex

from PIL import Image
from support.made_sweep import PROMPTS, made_sweep, record_overrides
from support.pages import read_content

from lantern.evaluation.rows import SUMMARY, setting_id
from lantern.reporting.page.write import command_of, commands, protocol, write_page
from lantern.runtime.files import replace_text


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
    assert all(
        picture["same"] for row in content["pictures"] for picture in row
    )  # the fake's tokens depend on seeds alone


def test_every_row_of_a_page_has_the_profile_of_its_own_setting(tmp_path):
    """Catches profiles read by their place instead of by their setting."""
    rows = [{"drafter": "eagle", "acceptance": "lantern", "tree": "static", "delta": delta} for delta in (0.1, 0.2)]
    profiles = {setting_id(row): {"nodes": number} for number, row in enumerate(rows)}
    write_page(tmp_path / "page.html", "page", rows, [], dict(reversed(profiles.items())))
    content = read_content(tmp_path / "page.html")
    assert [row["profile"]["nodes"] for row in content["rows"]] == [0, 1]


def test_the_protocol_says_once_what_all_share(tmp_path):
    for number, threads in ((0, 1), (1, 2)):
        record = {"threads": threads, "config": {"seed": 0, "hydra": {"x": number}}, "argv": ["a", "b"]}
        replace_text(tmp_path / str(number) / "provenance.json", json.dumps(record))
    rows = [{"delta": 0.1, "speedup": 1.5, "protocol": {"n": 8}}, {"delta": 0.2, "speedup": 1.7, "protocol": {"n": 8}}]
    found = protocol([tmp_path / "0", tmp_path / "1"], rows, ["a", "b"])
    assert found["runs"]["shared"] == [["config.seed", "0"], ["argv", "a b"]]
    assert found["runs"]["differing"] == {"keys": ["threads"], "lines": [["0", "1"], ["1", "2"]]}
    assert found["settings"]["shared"] == [["protocol.n", "8"]]
    assert found["settings"]["differing"]["lines"] == [["a", "0.1"], ["b", "0.2"]]


def test_a_missing_record_is_told_and_a_missing_picture_leaves_its_prompt_out(tmp_path, caplog):
    """Catches a finished run that ends in a FileNotFoundError when it is asked for again."""
    folder = made_sweep(tmp_path)
    (folder / "0" / "prompts.jsonl").unlink()
    next((folder / "1" / "images").glob("00001-*")).unlink()
    rows = [row["values"] for row in read_content(folder / "report.html")["rows"]]
    write_page(folder / "again.html", "again", rows, [folder / "0", folder / "1"], {})
    assert [prompt["text"] for prompt in read_content(folder / "again.html")["prompts"]] == [PROMPTS[0], PROMPTS[2]]
    assert f"{folder}/0/prompts.jsonl is missing: its images are not shown" in caplog.text


def test_large_pictures_are_made_smaller(tmp_path):
    from lantern.reporting.page.pictures import data_url

    Image.effect_noise((1024, 1024), 80).save(tmp_path / "large.png")
    assert len(data_url(tmp_path / "large.png")) < 250_000


def test_a_command_reads_back_as_the_recorded_overrides(tmp_path):
    """Catches quotes that a shell removes from a list of prompts, and ${…}, which only the run can resolve."""
    overrides = [
        "+method=lantern",
        "prompts=['a blue ring', \"$HOME's\"]",
        "drafter.checkpoint=${paths.weights}/drafter",
    ]
    record_overrides(tmp_path / "run", overrides, "RUN")
    assert shlex.split(command_of(tmp_path / "run")) == ["python", "evaluate.py", *overrides]


def test_a_point_of_a_sweep_is_run_alone(tmp_path):
    """Catches +sweep=delta starting the whole sweep again."""
    record_overrides(tmp_path / "3", ["+sweep=delta", "acceptance.delta=0.03"], "MULTIRUN")
    assert command_of(tmp_path / "3") == "python evaluate.py +sweep=delta acceptance.delta=0.03 hydra.mode=RUN"


def test_a_folder_of_yamls_is_part_of_the_command(tmp_path):
    record_overrides(tmp_path / "near", ["acceptance=mine"], "RUN", tmp_path / "my_conf")
    record_overrides(tmp_path / "far", ["acceptance=mine"], "RUN", tmp_path.parent / "my_conf")
    assert command_of(tmp_path / "near") == "python evaluate.py --config-dir my_conf acceptance=mine"
    assert command_of(tmp_path / "far").split()[3] == str(tmp_path.parent / "my_conf")


def test_commands_belong_to_settings_and_not_to_places(tmp_path):
    """A setting found by two points has the later one's command, a point without a record none."""
    shared, own = {"drafter": "none"}, [{"drafter": "eagle", "delta": delta} for delta in (0.1, 0.2, 0.3)]
    for number, row in enumerate(own):
        replace_text(tmp_path / str(number) / SUMMARY, json.dumps({"AR": shared, "method": row}))
    for number in (0, 1):
        record_overrides(tmp_path / str(number), [f"seed={number}"], "RUN")
    found = commands([tmp_path / str(number) for number in range(3)])
    ends = {key: command[-1] for key, command in found.items()}
    assert ends == {setting_id(shared): "1", setting_id(own[0]): "0", setting_id(own[1]): "1"}


def test_a_wheel_has_a_command_of_its_own(tmp_path, monkeypatch):
    """Catches evaluate.py where there is none."""
    monkeypatch.setattr("lantern.runtime.home.CHECKOUT", tmp_path)
    record_overrides(tmp_path / "run", ["seed=1"], "RUN")
    assert command_of(tmp_path / "run") == "lantern-evaluate seed=1"
