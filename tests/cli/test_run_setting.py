"""A setting's own numbers in its row, failures and unusable values as one sentence, and memory known before a run."""

from weakref import ref

import pytest
from huggingface_hub import constants
from hydra.errors import CompactHydraException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from support.configs import composed
from support.families import FAMILIES, config
from support.tiny_weights import write_tiny_weights

from lantern.cli.composing import one_at_a_time
from lantern.cli.error_messages import in_one_sentence
from lantern.cli.run_setting import own_settings, run_setting
from lantern.cli.settings import check_settings
from lantern.errors import LanternError
from lantern.evaluation.rows import read_rows
from lantern.runtime import memory
from lantern.runtime.memory import Estimate, num_bytes

SMALL = ["dtype=float32", "device=cpu", "tracking.mode=disabled", "prompts=demo", "speed.num_prompts=1"]


def test_a_row_names_the_window_that_was_found_and_not_the_one_of_the_config():
    """Catches a row of tree=auto that contradicts itself, and one that leaves out a tree's size."""
    cfg = composed("evaluate", "tree=auto", "drafter=refined_jacobi")
    tree = instantiate(cfg.tree)
    tree.found = {"length": 14}
    assert own_settings(cfg, tree, grows_tree=False)["drafter.length"] == 14
    cfg = composed("evaluate", "tree=eagle2", "tree.total=40")
    expected = {"tree.total": 40, "tree.depth": 5, "tree.width": 10}
    assert own_settings(cfg, instantiate(cfg.tree), grows_tree=True) == expected
    cfg = composed("evaluate", "+method=sjd_sv", "drafter.length=9")
    expected = {"drafter.length": 9, "drafter.start": "uniform", "verification.share": 0.8}
    assert own_settings(cfg, None, grows_tree=False) == expected


@pytest.mark.parametrize("model", ["llamagen", "anole"])
def test_a_sweep_of_guidance_loads_its_target_once(model):
    """Catches a target for each value of the sweep: of a large model one too many."""
    one, other = (composed("evaluate", f"model={model}", f"sampling.cfg_scale={scale}").model for scale in (1.5, 4))
    assert one == other


def test_a_batch_that_does_not_fit_is_rejected_before_anything_is_timed(tmp_path, monkeypatch):
    """Catches an error that is raised after an hour of timing."""
    monkeypatch.setattr(memory, "available_memory", lambda device: 2**28)
    cfg = composed("evaluate", "batch_size=512", "quality.num_images=512", "dtype=float32", "device=cpu")
    with pytest.raises(LanternError, match=r"batch_size=512 needs .* images at once fit"):
        run_setting(cfg, "llamagen", tmp_path, None)
    assert not (tmp_path / "prompts.jsonl").exists()


@pytest.mark.parametrize("failing", [[], ["+experiment=benchmark"]])
def test_a_setting_that_fails_frees_the_memory_of_its_target(failing, weights, tmp_path, monkeypatch):
    """Catches a sweep whose later points do not fit because an earlier one has failed."""
    targets = []

    def fails(target) -> None:
        target.allocate(2, 1)
        targets.append(target)
        raise ZeroDivisionError

    monkeypatch.setattr("lantern.evaluation.evaluate.Evaluation.run", lambda self, pipeline: fails(pipeline.target))
    monkeypatch.setattr("lantern.experiments.engine.Benchmark.run", lambda self, joined, *_: fails(joined.plain.target))
    cfg = composed("evaluate", "acceptance=exact", f"paths.weights={weights}", *SMALL, *failing)
    with pytest.raises(ZeroDivisionError):
        run_setting(cfg, "llamagen", tmp_path / "run", None)
    assert [target.held_bytes for target in targets] == [0]


@pytest.mark.parametrize("of_hub", ["target", "drafter"])
def test_rows_name_the_commit_of_weights_from_the_hub_and_of_no_others(of_hub, tmp_path, monkeypatch):
    """In the client's own cache, without the network. Catches a branch's name, and plain decoding with a drafter's."""
    commit, kept = "34" * 20, tmp_path / "models--owner--name"
    snapshot = kept / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    measured = ["tracking.mode=disabled", "prompts=demo", "acceptance=exact", "speed.num_prompts=1"]
    measured += ["quality.num_images=0", "speed.max_retimed=0"]
    if of_hub == "target":
        FAMILIES["glm_image"].make(snapshot)
        cfg = config(FAMILIES["glm_image"], "owner/name", *measured, "drafter=jacobi", "drafter.length=4")
    else:
        weights = write_tiny_weights(tmp_path / "weights")
        (weights / "drafter").rename(snapshot / "drafter")
        for file in (snapshot / "drafter").iterdir():
            file.rename(snapshot / file.name)
        own = [f"paths.weights={weights}", "dtype=float32", "device=cpu", "drafter.checkpoint=owner/name@main"]
        cfg = composed("evaluate", *measured, *own)
    plain, method = run_setting(cfg, "tiny", tmp_path / "run", None)
    assert plain["target_commit"] == method["target_commit"] == (commit if of_hub == "target" else None)
    assert method["drafter_commit"] == (commit if of_hub == "drafter" else None)
    assert plain["drafter_commit"] is None


@pytest.mark.full
def test_a_finished_run_is_judged_by_another_budget(weights, tmp_path):
    """Catches a budget that changes nothing because no figure depends on it."""
    small, pages = [f"paths.weights={weights}", *SMALL, "acceptance=exact", "quality.num_images=0"], []
    for budget in ("frechet", "equal_quality"):
        rows = run_setting(composed("evaluate", *small, f"budget={budget}"), "llamagen", tmp_path / "run", None)
        pages.append((tmp_path / "run" / "report.html").read_text())
    assert len(read_rows(tmp_path / "run" / "results.jsonl")) == len(rows)
    assert "images required" not in pages[0]
    assert "images required" in pages[1]


def test_one_model_is_held_at_a_time():
    """Catches a sweep over models that keeps all of them in memory."""
    one, other = ({"_target_": "torch.nn.Linear", "in_features": 1, "out_features": size} for size in (1, 2))
    held = ref(one_at_a_time(OmegaConf.create(one)))
    assert one_at_a_time(OmegaConf.create(one)) is held()
    assert one_at_a_time(OmegaConf.create(other)) is one_at_a_time(OmegaConf.create(other))
    assert held() is None


NAMED = {  # where the sentence names something beside the setting given last
    "prompts=[]": "the prompt list", "prompts=[sphinx] quality.num_images=0": "sphinx",
    "quality.num_images=8 metrics=[fidelity,clip_score]": "network.folder", "prompts=[rde]": "did you mean red?",
    "quality.num_images=8 metrics=[fidelity_inception]": "metrics.fidelity.extractor.weights",
}  # fmt: skip


@pytest.mark.parametrize("settings", [
    "speed.num_prompts=-1", "quality.num_images=1k", "speed.compiled_baseline=maybe",
    "speed.max_retimed=6", "shards=0", "shards=2 shard=2",
    "speed=null", "quality.num_images=1", "quality.num_images=8 metrics.fidelity.num_references=0",
    "quality.num_images=8 metrics=[fidelity,clip_score]", "quality.num_images=8 metrics=[fidelity_inception]",
    "output_tv.num_positions=1.5", "batch_size=0", "shards=x", "seed=true", "device=meta", "compile=maybe", "tf32=1",
    "split=null", "prompts=[]", "prompts=/nowhere.txt", f"prompts={300 * 'x'}", "prompts=[rde]",
    "prompts=[sphinx] quality.num_images=0", "sampling.temperature=nan",
    "sampling.cfg_scale=inf", "acceptance=lantern acceptance.delta=inf", "acceptance=lantern_pp acceptance.lam=0.5",
    "acceptance=lantern_pp acceptance.k=null",
    "tree=ddd tree.tau=nan", "tree=auto shards=2", "drafter=jacobi drafter.start=null", "drafter.checkpoint=3",
    "budget.within.frechet=nan", "budget.min_images=many", "prompts=['${x}']", "device=null", "tracking.mode=foo",
    "sampling.top_k=2.5",
])  # fmt: skip
def test_a_value_that_no_run_can_use_is_one_sentence_that_names_its_setting(settings, weights, tmp_path):
    """Catches a traceback, an hour of decoding before it, memory that runs out, and a word taken for true."""
    cfg = composed("evaluate", f"paths.weights={weights}", *SMALL, *settings.split())
    with pytest.raises(CompactHydraException) as caught:
        in_one_sentence(lambda cfg: check_settings(cfg) or run_setting(cfg, "llamagen", tmp_path, None))(cfg)
    assert NAMED.get(settings, settings.split()[-1].split("=")[0].split(".")[-1].lstrip("+")) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "prompts.jsonl").exists()


def test_the_embedded_model_takes_what_was_estimated():
    """Catches a cache or weights counted in another precision than they are kept in."""
    real = instantiate(composed("evaluate", "device=cpu", "dtype=float32").model)
    found = Estimate.of(instantiate(composed("evaluate", "device=meta", "dtype=float32").model), 26, 4)
    assert num_bytes(real.transformer) + num_bytes(real.tokenizer) <= found.weights
    real.allocate(4, 26)
    assert found.caches == real.cache.store.nbytes
