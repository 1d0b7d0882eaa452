import json

from PIL import Image
from support.fake_pipeline import FakePipeline
from support.made_sweep import PROMPTS, made_sweep
from support.pages import read_content

from lantern.evaluation.rows import setting_id
from lantern.reporting.page.write import protocol, write_page
from lantern.reporting.table import better, columns_of
from lantern.runtime.files import replace_text


def test_a_page_is_one_file_that_names_no_address(sweep):
    page = (sweep / "report.html").read_text()
    assert "{{" not in page
    assert not any(word in page for word in ("https://", 'src="http', "@import", "<link"))


def test_what_was_written_into_a_page_can_be_read_back(sweep):
    content = read_content(sweep / "report.html")
    assert [prompt["text"] for prompt in content["prompts"]] == PROMPTS
    assert content["rows"][0]["label"] == "AR"
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


def test_a_sweeps_page_has_the_profiles_of_all_its_points(sweep):
    content = read_content(sweep / "report.html")
    nodes = [row["profile"]["nodes"] for row in content["rows"]]
    assert nodes == [1, 2, 2, 2]
    assert len(json.loads((sweep / "profiles.json").read_text())) == 4


def test_unknown_metrics_become_columns_and_interval_ends_do_not():
    rows = [
        {
            "seed": 0,
            "acceptance.eps": 0.1,
            "speedup": 1.5,
            "speedup_low": 1,
            "speedup_high": 2,
            "clip_score": 0.3,
            "odd": 1,
            "name": "x",
        }
    ]
    assert [column.key for column in columns_of(rows)] == ["speedup", "clip_score", "odd"]
    assert [better(key) for key in ("clip_score", "odd", "frechet", "shape_accuracy")] == ["high", "", "low", "high"]


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


def test_a_damaged_provenance_is_named_and_leaves_the_page_whole(tmp_path, caplog):
    """Catches a report that ends at one point's file, and does not say at whose."""
    replace_text(tmp_path / "provenance.json", "{")
    assert protocol([tmp_path], [{"delta": 0.1}], ["a"])["runs"]["shared"] == []
    assert f"{tmp_path}/provenance.json is damaged" in caplog.text


def test_a_missing_picture_leaves_its_prompt_out(tmp_path):
    folder = made_sweep(tmp_path, {0.1: FakePipeline})
    next((folder / "0" / "images").glob("00001-*")).unlink()
    rows = [row["values"] for row in read_content(folder / "report.html")["rows"]]
    write_page(folder / "again.html", "again", rows, [folder / "0"], {})
    assert [prompt["text"] for prompt in read_content(folder / "again.html")["prompts"]] == [PROMPTS[0], PROMPTS[2]]


def test_a_missing_record_of_images_is_told_and_leaves_the_page_whole(tmp_path, caplog):
    """Catches a finished run that ends in a FileNotFoundError when it is asked for again."""
    folder = made_sweep(tmp_path)
    (folder / "0" / "prompts.jsonl").unlink()
    rows = [row["values"] for row in read_content(folder / "report.html")["rows"]]
    write_page(folder / "again.html", "again", rows, [folder / "0", folder / "1"], {})
    assert len(read_content(folder / "again.html")["prompts"]) == len(PROMPTS)
    assert f"{folder}/0/prompts.jsonl is missing: its images are not shown" in caplog.text


def test_large_pictures_are_made_smaller(tmp_path):
    from lantern.reporting.page.pictures import encoded

    Image.effect_noise((1024, 1024), 80).save(tmp_path / "large.png")
    assert len(encoded(tmp_path / "large.png")) < 250_000
