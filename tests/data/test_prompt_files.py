"""Prompt files as users have them: each is read as meant, or is one sentence."""

import pytest
from support.paths import PROMPTS

from lantern.data.prompts import Batch, load_prompts
from lantern.errors import LanternError
from lantern.scenes.captions import is_held_out, parse_caption


@pytest.mark.parametrize(("content", "prompts"), [
    (b"a ring\r\na disc\rblue\n\n", ["a ring", "a disc", "blue"]),
    (b"\xef\xbb\xbfa ring\n", ["a ring"]),
    ("a ring\r\nein Würfel\r\n".encode("utf-16"), ["a ring", "ein Würfel"]),
    ("ein Würfel 🎈 \u202e rot\n".encode(), ["ein Würfel 🎈 \u202e rot"]),
    ("a ring\u2028on\x85wood\n".encode(), ["a ring\u2028on\x85wood"]),
    (b"a\tring\na\tring\n", ["a\tring", "a\tring"]),
    (b"a red ring " * 1000, [("a red ring " * 1000).strip()]),
])  # fmt: skip
def test_a_file_is_read_a_prompt_a_line(content, prompts, tmp_path):
    """Catches a byte order mark that becomes part of the first prompt, and lines that end where no editor ends them."""
    (tmp_path / "real.txt").write_bytes(content)
    (tmp_path / "link.txt").symlink_to("real.txt")
    assert load_prompts(str(tmp_path / "link.txt"), tmp_path / "lists") == prompts


@pytest.mark.parametrize(("name", "content"), [
    ("p.json", '["a ring", {"caption": "a disc"}]'), ("p.tsv", "prompt\tid\na ring\t1\na disc\t2\n"),
    ("P.CSV", "text,id\na ring,1\na disc,2\n"), ("p.JSONL", '{"prompt": "a ring"}\n{"prompt": "a disc"}\n'),
    ("p.jsonl", "".join(f'{{"item_id": {i // 2}, "prompt": "a {["ring", "disc"][i // 2]}"}}\n' for i in range(4))),
])  # fmt: skip
def test_a_table_is_read_by_its_suffix(name, content, tmp_path):
    """Catches a bracket or a header that becomes a prompt."""
    (tmp_path / name).write_text(content)
    assert load_prompts(str(tmp_path / name), tmp_path) == ["a ring", "a disc"]


@pytest.mark.parametrize(("table", "prompts"), [
    ('"Fall" in leaves\t1\na disc\t2\n"open\t3\nend\t4\n', ['"Fall" in leaves', "a disc", '"open', "end"]),
    ('"a ""ring"",\ta disc"\t1\n"two\nlines"\t2\n', ['a "ring",\ta disc', "two\nlines"]),
])  # fmt: skip
def test_quotes_between_tabs_are_text_unless_the_table_quotes(table, prompts, tmp_path):
    """Catches quotes that vanish from a prompt, and an open one that swallows the rows behind it."""
    (tmp_path / "p.tsv").write_text(f"prompt\tid\n{table}")
    assert load_prompts(str(tmp_path / "p.tsv"), tmp_path) == prompts


@pytest.mark.parametrize(("content", "said"), [
    (b"", "holds no prompts"),
    (b"\n \n\t\n", "holds no prompts"),
    (bytes(range(128, 256)), "is not UTF-8 text"),
    ("a ring’s edge".encode("cp1252"), "is not UTF-8 text"),
    ("a ring".encode("utf-16")[:-1], "is not UTF-8 text"),
    (b"a ring\0\n", "is not UTF-8 text"),
])  # fmt: skip
def test_a_file_that_cannot_be_meant_is_one_sentence(content, said, tmp_path):
    """Catches a traceback of the codec."""
    (tmp_path / "p.txt").write_bytes(content)
    with pytest.raises(LanternError) as caught:
        load_prompts(str(tmp_path / "p.txt"), tmp_path)
    assert said in str(caught.value)
    (tmp_path / "p.csv").write_bytes(b"prompt\n" + content)
    with pytest.raises(LanternError, match=f"{said}|p.csv"):
        load_prompts(str(tmp_path / "p.csv"), tmp_path)


def test_a_mistyped_name_of_a_list_is_answered_by_the_one_like_it():
    with pytest.raises(LanternError, match=r"prompts=demos .*; did you mean demo\? Else give a text file"):
        load_prompts("demos", PROMPTS)


def test_a_list_that_cannot_be_fetched_names_its_place_the_reason_and_the_setting_for_a_file(monkeypatch):
    """Catches advice to name a column of a table that nobody has read."""

    def unreachable(*_: object) -> None:
        raise FileNotFoundError("https://…") from ConnectionError("no name server")

    monkeypatch.setattr("fsspec.open", unreachable)
    with pytest.raises(LanternError, match=r"https.*jsonl has to be fetched .*no name server.*; .* prompts=") as caught:
        load_prompts("geneval", PROMPTS)
    assert "column" not in str(caught.value)


def test_a_blank_item_id_is_none_and_repeats_are_counted(tmp_path, caplog):
    """Catches three prompts that become one."""
    caplog.set_level("INFO")
    (tmp_path / "p.csv").write_text("item_id,prompt\n,a\n ,b\n1,c\n1,d\n")
    (tmp_path / "p.jsonl").write_text('{"item_id": null, "prompt": "a"}\n{"item_id": null, "prompt": "b"}\n')
    assert load_prompts(str(tmp_path / "p.csv"), tmp_path) == ["a", "b", "c"]
    assert load_prompts(str(tmp_path / "p.jsonl"), tmp_path) == ["a", "b"]
    assert "p.csv: 1 rows repeat" in caplog.text
    (tmp_path / "p.csv").write_text("prompt,\na sphere,,\na red sphere, on wood, blue\n")
    with pytest.raises(LanternError, match=r"p\.csv line 3: it has more fields than the header: +blue"):
        load_prompts(str(tmp_path / "p.csv"), tmp_path)


@pytest.mark.parametrize("source", ["", " ", ".", "x" * 5000, "no such list", "dangling", "~nouser/x.txt", [], [" "]])
def test_what_holds_no_prompts_is_one_sentence(source, tmp_path, monkeypatch):
    (tmp_path / "dangling").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ("todo.md" if source == "." else "todo.txt")).write_text("milk")
    with pytest.raises(LanternError, match=r"prompts=.*; give|cannot be read|holds no prompts"):
        load_prompts(source, tmp_path / "lists")


def test_equal_and_long_prompts_have_files_and_seeds_of_their_own():
    """Catches an image that overwrites another, and a file name that no disk takes."""
    batch = Batch.cycle(["a ring", "a ring", "w" * 10_000, "🎈\u202e/../x"], 6, 0)
    assert len(set(batch.file_names)) == len(set(batch.seeds)) == 6
    assert all(len(name.encode()) < 255 and "/" not in name for name in batch.file_names)


@pytest.mark.parametrize(("one", "other"), [
    (["a red sphere"], ["A red sphere"]), (["a red sphere"], ["a red sphere!"]), (["A ring"], ["A Ring"]),
    (["a ring", "a ring"], ["a", "a ring"]), (["w" * 100], ["w" * 101]),
])  # fmt: skip
def test_other_images_have_other_names_also_in_another_list_of_prompts(one, other):
    """Catches pictures of plain decoding that the points of a sweep replace by those of other prompts."""
    batches = [Batch.cycle(prompts, len(prompts), 0) for prompts in (one, other)]
    assert batches[0].file_names[-1] != batches[1].file_names[-1]
    assert Batch.cycle(["a red sphere"], 1, 0).file_names == ["00000-a-red-sphere.png"]


def test_copies_of_a_prompt_have_seeds_of_their_own_and_any_whole_number_is_a_seed():
    assert len({tuple(Batch.cycle(["a ring"], 2, seed).seeds) for seed in (0, -1, 2**32, 10**40)}) == 4
    batch = Batch.cycle(["a", "b", "a"], 5, seed=0)
    assert batch.copies == [0, 0, 1, 2, 1]
    assert len(set(batch.seeds)) == 5
    assert Batch.cycle(["a"], 1, 0).seeds == batch.seeds[:1]


def test_prompts_come_from_a_name_a_list_or_a_file(tmp_path):
    (tmp_path / "mine.txt").write_text("a red sphere on wood\n\n  wood \n")
    assert load_prompts("mine", tmp_path) == load_prompts(str(tmp_path / "mine.txt"), tmp_path / "none")
    assert load_prompts("mine", tmp_path) == load_prompts(["a red sphere on wood", "wood"], tmp_path)


@pytest.mark.parametrize("name", ["scenes", "novel", "demo"])
def test_shipped_prompts_are_captions_and_novel_ones_are_held_out(name):
    prompts = load_prompts(name, PROMPTS)
    assert {is_held_out(parse_caption(prompt)) for prompt in prompts} == {name == "novel"}
