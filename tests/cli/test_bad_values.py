"""Values of evaluate.py that no run can use: one sentence that names them, before anything is decoded."""

import pytest
from hydra.errors import CompactHydraException
from support.configs import composed
from support.tiny_weights import write_tiny_weights

from lantern.cli.error_messages import in_one_sentence
from lantern.cli.run_setting import run_setting
from lantern.cli.settings import check_settings

SMALL = ["dtype=float32", "device=cpu", "tracking.mode=disabled", "prompts=demo", "speed.num_prompts=1"]
NAMED = {  # where the sentence names something beside the setting given last
    "prompts=[]": "the prompt list", "prompts=[sphinx]": "sphinx", "prompts=[sphinx] quality.num_images=0": "sphinx",
    "quality.num_images=8 metrics=[fidelity,clip_score]": "network.folder",
    "quality.num_images=8 metrics=[fidelity_inception]": "metrics.fidelity.extractor.weights",
}  # fmt: skip


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_tiny_weights(tmp_path_factory.mktemp("weights"))


@pytest.mark.parametrize("settings", [
    "speed.num_prompts=-1", "quality.num_images=1k", "speed.compiled_baseline=maybe",
    "speed.max_retimed=6", "shards=0", "shards=2 shard=2",
    "speed=null", "quality.num_images=1", "quality.num_images=8 metrics.fidelity.num_references=0",
    "quality.num_images=8 metrics=[fidelity,clip_score]", "quality.num_images=8 metrics=[fidelity_inception]",
    "output_tv.num_positions=1.5", "batch_size=0", "shards=x", "seed=true", "device=meta", "compile=maybe", "tf32=1",
    "split=null", "prompts=[]", "prompts=/nowhere.txt", f"prompts={300 * 'x'}", "prompts=[sphinx]",
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
