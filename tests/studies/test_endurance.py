"""The study of long runs, at a fraction of its size: it counts images and steps while they are made."""

import pytest

from lantern.studies import endurance
from lantern.studies.process_samples import Sample


@pytest.mark.full
def test_a_short_study_samples_both_commands_while_they_work(tmp_path):
    """Catches a count that stays at zero or jumps to the end, and W&B files that are not found."""
    endurance.study(tmp_path, images=1000, steps=300, every_s=0.1)
    text = (tmp_path / "report.md").read_text()
    assert text.count("open files |") == 2
    assert "W&B 0.0 MB" not in text
    assert (tmp_path / "endurance.png").is_file()
    for name, total in (("evaluation", 1000), ("training", 300)):
        rows = endurance.read_rows(tmp_path / name / "samples.jsonl")
        done = [row["done"] for row in rows]
        assert done == sorted(done)
        assert len({count for count in done if 0 < count < total}) >= 5, name


def test_lines_of_growing_files_are_counted_once(tmp_path):
    """Catches bytes that are read again, and the file of an earlier start left out."""
    count = endurance.LineCount("*.csv", lines_per=0.1)
    (tmp_path / "metrics.csv").write_text("a\nb\nc")
    assert count(tmp_path) == 20
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("d\ne\n")
    assert (count(tmp_path), count(tmp_path)) == (40, 40)


def test_the_report_after_the_last_image_is_no_part_of_the_work():
    samples = [Sample(done, 1.0, 1, 1, 1.0, 1.0) for done in (0, 5, 9, 10, 10, 10)]
    assert [one.done for one in endurance.working(samples, 10)] == [5, 9]
