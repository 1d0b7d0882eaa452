"""python -m lantern.score, on images in files: the figures of the small-size path, and bounded memory."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from support.commands import module_refusal, python, run_as_module
from support.features import MeanColour

from lantern.data.image_sets import open_images
from lantern.errors import LanternError
from lantern.metrics.differences import Diversity, ImageDifference
from lantern.metrics.fidelity import Fidelity, StoredReferences
from lantern.score import Watched, figures, prompt_numbers, table, without_partner

SIDE, COUNT = 16, 24
REAL = torch.rand(COUNT, 3, 16, 16, generator=torch.Generator().manual_seed(0))
MEMORY = """
import sys
import numpy as np, torch
from torch import nn
from lantern.data.image_sets import open_images
from lantern.score import figures
from lantern.metrics.fidelity import Fidelity

class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Conv2d(3, 4, 16, stride=16)
    def features(self, images):
        return self.body(images).flatten(1)

images, references = sys.argv[1:]
found = figures(open_images(images), [""] * len(open_images(images)), {"fidelity": Fidelity(Patches(), references)})
status = open("/proc/self/status").read()  # getrusage gives the peak of the starting process, if larger
print(status.split("VmHWM:")[1].split()[0], found["num_images"], found["frechet"], found["recall"])
"""


def save(folder: Path, seed: int, count: int = COUNT) -> Path:
    folder.mkdir()
    pixels = np.random.default_rng(seed).integers(256, size=(count, SIDE, SIDE, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def run(monkeypatch, capsys) -> Callable[..., str]:
    def run(*overrides: str) -> str:
        run_as_module(monkeypatch, "lantern.score", *overrides)
        return capsys.readouterr().out

    return run


def test_the_command_scores_a_folder_against_another(run, tmp_path):
    """Catches references of the metric's yaml in place of the command's: their captions are scenes."""
    images, real = save(tmp_path / "made", 1), save(tmp_path / "real", 2)
    said = run(f"images={images}", f"references={real}", "metrics=[fidelity]", f"hydra.run.dir={tmp_path}/run")
    found = json.loads((tmp_path / "run" / "results.json").read_text())
    assert {"frechet", "kernel_low", "precision", "recall_high", "extractor"} <= found.keys()
    assert (found["num_images"], found["num_references"]) == (COUNT, COUNT)
    assert "frechet" in said


def test_reading_shows_how_far_all_metrics_are():
    shown = []
    line = SimpleNamespace(show=lambda share, words, left_s: shown.append((share, words, left_s is None)))
    images = Watched(torch.zeros(100, 3, 2, 2), line, "fidelity", number=1, count=2)
    assert len(torch.cat([images[:50], images[50:100]])) == len(images) == 100
    assert shown == [(0.5, "fidelity, image 1 of 100", True), (0.75, "fidelity, image 51 of 100", False)]


def test_the_command_writes_a_layout_and_scores_nothing(run, tmp_path):
    prompts = tmp_path / "evaluation_metadata.jsonl"
    prompts.write_text("".join(json.dumps({"tag": "colors", "prompt": f"a {i}"}) + "\n" for i in range(COUNT // 4)))
    images = save(tmp_path / "made", 1)
    run(f"images={images}", f"prompts={prompts}", "images_per_prompt=4", "layout=geneval", f"to={tmp_path}/out",
        f"hydra.run.dir={tmp_path}/run")  # fmt: skip
    assert len(list((tmp_path / "out").rglob("samples/*.png"))) == COUNT
    assert json.loads((tmp_path / "out" / "00005" / "metadata.jsonl").read_text())["prompt"] == "a 5"
    assert not (tmp_path / "run" / "results.json").exists()


@pytest.mark.parametrize(("override", "said"), [
    ("images=NONE", "nothing at"), ("size=big", "size=big"), ("layout=adm", "to="), ("to=x", "layout="),
    ("layout=adm to=x prompts=[a,b,c,d,e,f,g,h,i]", "9 prompts"), ("images_per_prompt=0", "images_per_prompt=0"),
    ("metrics=[]", "metrics="), ("metrics=[pairs] references=x", "references=x"), ("+image=3", "nothing reads"),
    ("metrics=[diversty]", "metrics=diversty is no option; did you mean diversity? Else give one of accuracy, "),
])  # fmt: skip
def test_a_mistake_is_one_sentence(override, said, tmp_path, monkeypatch):
    images = save(tmp_path / "made", 1, 8)
    given = [f"images={images}", *override.split()] if not override.startswith("images=") else [override]
    assert said in module_refusal(monkeypatch, "lantern.score", *given, f"hydra.run.dir={tmp_path}/run")


def test_images_belong_to_their_prompts_in_turn_or_one_prompt_after_another():
    assert prompt_numbers(6, 3, 1) == [0, 1, 2, 0, 1, 2]
    assert prompt_numbers(7, 3, 1) == [0, 1, 2, 0, 1, 2, 0]
    assert prompt_numbers(6, 3, 2) == [0, 0, 1, 1, 2, 2]
    for sizes in ((2, 3, 1), (7, 3, 2), (5, 3, 2)):
        with pytest.raises(LanternError, match="prompts"):
            prompt_numbers(*sizes)


def test_the_figures_of_files_are_those_of_the_same_tensor(tmp_path):
    """Catches an image read twice or left out between two batches."""
    made, real = (open_images(save(tmp_path / name, seed, 80)) for name, seed in (("made", 1), ("real", 2)))
    prompts = [*"abcdefgh"] * 10
    tensors = Fidelity(MeanColour(), StoredReferences(tmp_path / "real"), resamples=3)
    tensors.references.images = real[0:80]
    judges = [{"f": Fidelity(MeanColour(), str(tmp_path / "real"), resamples=3), "d": Diversity(MeanColour())}]
    judges.append({"f": tensors, "d": Diversity(MeanColour())})
    found, expected = (figures(of, prompts, by) for of, by in zip((made, made[0:80]), judges, strict=True))
    assert found == expected
    assert judges[0]["f"].against(made, made, prompts)["frechet_diff"] == 0
    assert "frechet" in table(found)
    assert "to" not in table({"num_images": 1, "x": 0.5, "x_low": np.nan, "x_high": np.nan, "warnings": []})


@pytest.mark.parametrize("is_stored", [True, False])
def test_images_of_another_size_than_the_references_are_a_warning_and_both_sizes_stand_in_the_result(is_stored):
    """Catches 24 pictures of 128 pixels, which a network's resize blurs, against the same at 512."""
    for side, is_told in ((16, False), (4, True)):
        references = StoredReferences.__new__(StoredReferences) if is_stored else lambda prompts, count: REAL
        if is_stored:
            references.images, references.gaussian = REAL, None
        metric = Fidelity(MeanColour(), references, len(REAL), resamples=1)
        found = figures(torch.rand(COUNT, 3, side, side), [""] * COUNT, {"fidelity": metric})
        assert (found["image_size"], found["reference_size"]) == (f"{side} x {side}", "16 x 16")
        assert sum("4 x 4" in text for text in found["warnings"]) == is_told


def test_a_number_of_images_that_is_no_multiple_of_the_prompts_is_a_warning_with_the_first_stray_name(run, tmp_path):
    """Catches grid.png among four pictures of four prompts, which becomes a second picture of the first prompt."""
    images = save(tmp_path / "made", 1, 4)
    assert without_partner(open_images(images), 4) == without_partner(open_images(images), 2) == []
    Image.new("RGB", (SIDE, SIDE)).save(images / "grid.png")
    (told,) = without_partner(open_images(images), 4)
    assert "'grid.png'" in told
    assert "image 5" in without_partner(open_images(images)[0:7], 4)[0]
    said = run(f"images={images}", "prompts=[a ring,b,c,d]", "layout=dpg", f"to={tmp_path}/out",
        f"hydra.run.dir={tmp_path}/run")  # fmt: skip
    assert f"warning: {told}" in said


def statistics(path: Path, features: np.ndarray, **others: np.ndarray) -> str:
    np.savez(path, **others, mu=features.mean(0), sigma=np.cov(features, rowvar=False))
    return str(path)


def test_statistics_give_the_frechet_distance_of_the_images_they_are_of_and_nothing_else(tmp_path):
    """Catches a covariance divided by another number, and figures that statistics do not hold."""
    real = torch.rand(40, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    real = (real * 255).round() / 255
    made, prompts = torch.rand(30, 3, 4, 4, generator=torch.Generator().manual_seed(1)), [""] * 30
    path = statistics(tmp_path / "known.npz", real.mean((2, 3)).double().numpy())
    known = Fidelity(MeanColour(), path, resamples=4)
    by_images = Fidelity(MeanColour(), lambda prompts, count: real, 40, resamples=4)
    found, expected = known(made, prompts), by_images(made, prompts)
    assert found.keys() == {"frechet", "frechet_low", "frechet_high"}
    assert found["frechet"] == pytest.approx(expected["frechet"], rel=1e-5)
    assert found["frechet_low"] <= found["frechet"] <= found["frechet_high"]
    assert known.against(made, 1 - made, prompts).keys() == {f"frechet_diff{end}" for end in ("", "_low", "_high")}
    assert any("statistics" in text for text in known.warnings(prompts))
    assert known.protocol(prompts)["num_references"] is None


def test_a_file_of_adm_gives_its_statistics_to_the_frechet_distance_and_its_images_to_the_others(tmp_path):
    real = np.random.default_rng(0).integers(256, size=(40, 4, 4, 3), dtype=np.uint8)
    made, prompts = torch.rand(30, 3, 4, 4, generator=torch.Generator().manual_seed(1)), [""] * 30
    features = real.mean((1, 2)) / 255
    path = statistics(tmp_path / "adm.npz", features + 0.5, arr_0=real)  # of other images, so that it shows
    plain = tmp_path / "plain.npz"
    np.savez(plain, real)
    found, expected = (Fidelity(MeanColour(), str(file))(made, prompts) for file in (path, plain))
    assert found["frechet"] > expected["frechet"] + 0.5
    assert {k: found[k] for k in ("kernel", "precision", "recall")} == {
        k: expected[k] for k in ("kernel", "precision", "recall")
    }


def test_statistics_of_another_network_are_refused(tmp_path):
    metric = Fidelity(MeanColour(), statistics(tmp_path / "known.npz", np.random.default_rng(0).normal(size=(40, 5))))
    with pytest.raises(LanternError, match="5 features"):
        metric(torch.rand(8, 3, 4, 4), [""] * 8)
    others, images = np.random.default_rng(0).normal(size=(40, 5)), np.zeros((40, 4, 4, 3), np.uint8)
    with pytest.raises(LanternError, match="5 features"):
        Fidelity(MeanColour(), statistics(tmp_path / "adm.npz", others, arr_0=images))(torch.rand(8, 3, 4, 4), [""] * 8)


def test_metrics_that_compare_two_methods_judge_no_images():
    with pytest.raises(LanternError, match=r"metrics=\[pairs\] compares two methods"):
        figures(torch.rand(8, 3, 4, 4), [""] * 8, {"pairs": ImageDifference()})


@pytest.mark.full
def test_8_000_images_of_64_pixels_are_scored_in_little_memory(tmp_path):
    """Catches all pixels in float32, 375 MiB, beside their bytes, or all pairs, 490 MiB, in memory."""
    rng = np.random.default_rng(0)
    for name, count in (("made", 8_000), ("real", 1_000)):
        np.savez(tmp_path / f"{name}.npz", rng.integers(256, size=(count, 64, 64, 3), dtype=np.uint8))
    files = [str(tmp_path / f"{name}.npz") for name in ("made", "real")]
    kilobytes, count, frechet, recall = python("-c", MEMORY, *files).stdout.split()
    assert int(count) == 8_000
    assert int(kilobytes) < 750 * 2**10  # 555 MiB, 286 of which are torch's
    assert float(frechet) > 0
    assert float(recall) > 0.5
