"""LlamaGen-B at full size through the command, weights random, in the memory that a laptop has."""

import re

import pytest
from support.commands import python, run_script
from support.full_size import write_llamagen_b
from transformers import ChameleonConfig

MEASURED = """
import runpy, sys
sys.argv = ["evaluate.py", *sys.argv[1:]]
runpy.run_path("evaluate.py", run_name="__main__")
print("peak KiB", open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""
PEAK_KIB = 1.82e6  # measured on two cores, in float32


@pytest.mark.full
def test_llamagen_b_decodes_an_image_within_3_gib(tmp_path):
    """Catches a full-size model that loads only in tests of tiny ones, and weights kept too many times."""
    write_llamagen_b(tmp_path)
    settings = ["model=llamagen_c2i_b", f"model.checkpoint={tmp_path}", f"model.tokenizer.checkpoint={tmp_path}"]
    settings += ["drafter=none", "acceptance=exact", "prompts=[7]", "speed.num_prompts=0", "quality.num_images=0"]
    done = python("-c", MEASURED, *settings, f"hydra.run.dir={tmp_path}/run")
    assert len(list((tmp_path / "run" / "images").glob("*.png"))) == 1
    assert int(re.search(r"peak KiB (\d+)", done.stdout)[1]) < 1.5 * PEAK_KIB


@pytest.mark.full
def test_a_dry_run_needs_config_json_alone(tmp_path, monkeypatch, capsys):
    """Catches an estimate that asks the Hub, and one that fails for what it never uses."""
    ChameleonConfig(vocabulary_map={}).save_pretrained(tmp_path)
    given = ["model=lumina_mgpt", f"model.checkpoint={tmp_path}", "dtype=bfloat16"]
    run_script(monkeypatch, "evaluate.py", *given, "dry_run=true", f"hydra.run.dir={tmp_path}/run")
    told = capsys.readouterr().out
    assert re.search(r"weights +12\.\d\d GiB", told)
    assert re.search(r"keys and values, B = 32 +83\.\d\d GiB", told)
