"""Requests and fingerprints, splits of prompts, hashes of code and ids of older files, and disturbed timings."""

import json
import os

import pytest
from support.paths import PROMPTS

from lantern.data.prompts import load_prompts, split_prompts
from lantern.errors import CheckpointError, LanternError
from lantern.evaluation.run_folder import EvaluationFolder
from lantern.identity import PLAIN_DECODING, code_hash, config_fingerprint, request_hash, user_code
from lantern.models.llamagen.weights_folder import check_made_for
from lantern.reporting.merge import check_alike
from lantern.runtime import cores as disturbance
from lantern.runtime.cores import CpuContention
from lantern.runtime.files import replace_text

SCENES = load_prompts("scenes", PROMPTS)
SOURCE = '''"""Numbers."""


def half(x):
    """Halves."""
    return x / 2  # a half

'''
CONFIG = {"tree": {"paths": [[0]]}, "acceptance": {"lam": 2}, "seed": 0, "paths": {"root": "/a"}, "shards": 1}


def test_dev_and_test_prompts_share_no_text_and_make_up_all():
    dev, test = (split_prompts(SCENES, split) for split in ("dev", "test"))
    assert not {text.lower() for text in dev} & {text.lower() for text in test}
    assert sorted(dev + test) == sorted(split_prompts(SCENES, "all"))
    assert 0.15 < len(dev) / len(SCENES) < 0.35


def test_a_split_without_prompts_or_unknown_is_one_sentence():
    with pytest.raises(LanternError, match="leaves no prompt of"):
        split_prompts([text for text in SCENES if text in set(split_prompts(SCENES, "dev"))], "test")
    with pytest.raises(LanternError, match="split=tset"):
        split_prompts(SCENES, "tset")


def test_records_know_a_device_by_its_kind():
    """Catches images that are made again because another of two equal GPUs is used."""
    first, second, cpu = ({"device": device, "model": {"device": device}} for device in ("cuda:0", "cuda:1", "cpu"))
    for key in (config_fingerprint, lambda config: request_hash(config, {})):
        assert key(CONFIG | first) == key(CONFIG | second) != key(CONFIG | cpu)


def test_a_fingerprint_distinguishes_settings_without_a_row_key():
    """Catches two trees of one name, or a rule's own parameter, that merge into one row."""
    assert config_fingerprint(CONFIG) != config_fingerprint(CONFIG | {"tree": {"paths": [[0], [1]]}})
    assert config_fingerprint(CONFIG) == config_fingerprint(CONFIG | {"seed": 1})


@pytest.mark.parametrize("key", ["model", "sampling", "dtype", "device", "compile", "tf32"])
def test_plain_decoding_of_another_precision_or_law_is_another_baseline(key):
    """Catches timings of plain decoding that are pooled over tf32 or compiled layers, by the fingerprint of what plain
    decoding is built from; the drafter, the tree and the rule are no part of it."""

    def of(**changes: object) -> str:
        return config_fingerprint({**dict.fromkeys(PLAIN_DECODING, "one"), "tree": "one", **changes}, PLAIN_DECODING)

    assert of(**{key: "two"}) != of() == of(tree="two")


@pytest.mark.parametrize(
    ("changed", "is_kept"),
    [
        (('"""Halves."""', '"""Divides by two."""'), True),
        (("# a half", "# one part of two"), True),
        (("x / 2", "x / 3"), False),
    ],
)
def test_an_edited_comment_keeps_the_records_and_an_edited_constant_does_not(tmp_path, changed, is_kept):
    """Catches records that count after the program has changed, in any folder, and records lost to a docstring."""
    hashes = []
    for name, text in {"before": SOURCE, "after": SOURCE.replace(*changed)}.items():
        replace_text(tmp_path / name / "inner" / "numbers.py", text)
        hashes.append(code_hash(tmp_path / name))
    assert (hashes[0] == hashes[1]) is is_kept


READ = {"target": "a", "model.tokenizer": "b"}


def test_a_finished_point_is_reused_for_the_same_request_only(tmp_path):
    request, run = request_hash(CONFIG, READ), EvaluationFolder(tmp_path)
    assert not run.is_finished(request)
    row = {"model": "m", "drafter": "none", "tree": "none", "acceptance": "exact"}
    replace_text(tmp_path / "summary.json", json.dumps({"AR": row}))
    run.finish(request)
    assert run.is_finished(request_hash(CONFIG | {"shards": 2, "paths": {"root": "/b"}}, READ))
    assert not run.is_finished(request_hash(CONFIG | {"seed": 1}, READ))
    assert not run.is_finished(request_hash(CONFIG, READ | {"model.tokenizer": "other"}))


def test_other_processes_are_counted_and_ones_own_work_is_not(monkeypatch, tmp_path):
    """Catches own processor time that counts as a disturbance, and other jobs on cores that are not this one's."""
    ticks = os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(disturbance, "STAT", tmp_path / "stat")
    monkeypatch.setattr(disturbance, "usable_cores", lambda: [1, 10])

    def busy(seconds: float) -> None:
        own, idle = int(seconds * ticks / 2), "0 0 99 99 0 0 0 7 7"
        cores = {"": 9000 * seconds, "0": 900 * seconds, "1": own, "10": own, "100": 99 * seconds}
        (tmp_path / "stat").write_text("".join(f"cpu{core} {int(spent)} {idle}\n" for core, spent in cores.items()))

    clock, own = iter([10.0, 12.0]), iter([1.0, 1.5])
    with monkeypatch.context() as patched:
        patched.setattr(disturbance, "perf_counter", lambda: next(clock))
        patched.setattr(disturbance, "process_time", lambda: next(own))
        busy(0)
        others = CpuContention()
        busy(2.5)
        assert others.cores() == pytest.approx(1)  # 2.5 seconds of work in 2, of which half a second was ours
    monkeypatch.setattr(disturbance, "STAT", tmp_path / "none")
    assert CpuContention().cores() is None


def test_a_released_config_with_sixteen_digits_is_checked_by_twelve(tmp_path):
    """Catches a target that is refused for the length of its hash, and one of another tokenizer that is not."""
    check_made_for({"tokens_hash": "0123456789abcdef"}, "tokens", tmp_path, tmp_path, "0123456789ab")
    with pytest.raises(CheckpointError, match="was trained on tokens 0123456789abcdef"):
        check_made_for({"tokens_hash": "0123456789abcdef"}, "tokens", tmp_path, tmp_path, "0123456789aa")


def test_the_code_of_a_users_part_is_its_module_with_what_it_imports_of_their_own(tmp_path, monkeypatch):
    """Catches an edited helper module that leaves an old result, and a comment that drops it."""
    files = {"my_part.py": "import torch, my_folder.tools\nfrom my_package import inner\n"}
    files |= {"my_package/__init__.py": ""}
    files |= {"my_package/inner.py": "from . import constants\n", "my_package/constants.py": "SHARE = 1\n"}
    files |= {"my_folder/tools.py": "SIZE = 1\n"}  # without an __init__.py
    for name, text in files.items():
        replace_text(tmp_path / name, text)
    monkeypatch.syspath_prepend(tmp_path)
    config = {"rules": [{"_target_": "my_part.Rule"}], "model": {"_target_": "lantern.models.llamagen.load"}}
    before = user_code(config)
    assert before.startswith("my_part ")
    (tmp_path / "my_package" / "constants.py").write_text("SHARE = 1  # all of it\n")
    assert user_code(config) == before
    (tmp_path / "my_package" / "constants.py").write_text("SHARE = 2\n")
    changed = user_code(config)
    (tmp_path / "my_folder" / "tools.py").write_text("SIZE = 2\n")
    assert len({before, changed, user_code(config), None}) == 4
    assert user_code({"model": config["model"], "optimizer": {"_target_": "torch.optim.AdamW"}}) is None


def test_rows_of_two_versions_of_a_users_code_are_not_merged(tmp_path):
    """Catches a sweep that was resumed after an edit, with points of both versions in one table."""
    row = {"model": "llamagen", "drafter": "eagle", "acceptance": "mine", "tree": "static"}
    check_alike([row | {"user_code": "mine 1, other 1"}, row | {"user_code": "other 1"}])
    with pytest.raises(LanternError, match="different code of mine"):
        check_alike([row | {"user_code": "mine 1"}, row | {"user_code": "other 1, mine 2"}])
