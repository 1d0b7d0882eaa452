"""Values of evaluate.py that no run can use: one sentence that names them, before anything is decoded."""

import pytest
import torch
from hydra.errors import CompactHydraException
from omegaconf import DictConfig
from support.configs import composed, composed_with_hydra
from support.tiny_weights import write_tiny_weights

from lantern.cli.error_messages import in_one_sentence
from lantern.cli.plain_settings import OWN, check_added, tell_unused_tree
from lantern.cli.run_setting import run_setting
from lantern.errors import LanternError
from lantern.sampling import Sampling

SMALL = ["dtype=float32", "device=cpu", "tracking.mode=disabled", "prompts=demo", "speed.num_prompts=1"]
NAMED = {  # where the sentence names something beside the setting given last
    "prompts=[]": "the prompt list", "prompts=[sphinx]": "sphinx", "prompts=[sphinx] quality.num_images=0": "sphinx",
    "quality.num_images=8 metrics=[fidelity,clip_score]": "metrics.clip_score.network.folder",
    "quality.num_images=8 metrics=[fidelity_inception]": "metrics.fidelity.extractor.weights",
}  # fmt: skip


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_tiny_weights(tmp_path_factory.mktemp("weights"))


@pytest.mark.parametrize("settings", [
    "speed.num_prompts=1000000000000",
    "speed.num_prompts=-1",
    "quality.num_images=1k",
    "speed.max_retimed=-1",
    "speed.compiled_baseline=maybe",
    "speed=null",
    "quality.num_images=1",
    "quality.num_images=8 metrics.fidelity.num_references=0",
    "quality.num_images=8 metrics.fidelity.resamples=true",
    "quality.num_images=8 metrics=[fidelity,clip_score]",
    "quality.num_images=8 metrics=[fidelity_inception]",
    "quality.num_images=8 metrics.fidelity=3",
    "output_tv.num_positions=1.5",
    "output_tv.redraws=1000000000000",
    "batch_size=0",
    "lease_s=true",
    "shards=x",
    "seed=true",
    "device=meta",
    "compile=maybe",
    "tf32=1",
    "split=null",
    "prompts=[]",
    "prompts=/nowhere.txt",
    f"prompts={300 * 'x'}",
    "prompts=[sphinx]",
    "prompts=[sphinx] quality.num_images=0",
    "sampling.temperature=null",
    "sampling.temperature=1e-300",
    "sampling.temperature=nan",
    "sampling.cfg_scale=inf",
    "acceptance=lantern acceptance.delta=inf",
    "acceptance=lantern_pp acceptance.lam=inf",
    "acceptance=lantern_pp acceptance.lam=0.5",
    "acceptance=lantern_pp acceptance.k=null",
    "acceptance=vvs acceptance.skip=true",
    "acceptance=cool_sd acceptance.mu=-1e300",
    "acceptance=exact +acceptance.k=3",
    "+tree.length=3",
    "drafter=none +drafter.length=3",
    "acceptance=exact +drafter.width=3",
    "+budget.k=3",
    "tree=ddd tree.tau=nan",
    "tree=ddd tree.checks=[true]",
    "tree.paths=[[false]]",
    "drafter=jacobi drafter.start=null",
    "drafter.checkpoint=3",
    "drafter.checkpoint=/nowhere",
    "budget.within.frechet=nan",
    "budget.within.frechet=-1",
    "budget.min_images=many",
    "study=3",
    "prompts=['${x}']",
    "device=null",
    "tracking.mode=foo",
    "acceptance=lantern acceptance.delta=abc",
    "tree=eagle2 tree.total=many",
    "sampling.temperature=hot",
    "sampling.top_k=2.5",
    "+method=refined_branches drafter.branches=x",
])  # fmt: skip
def test_a_value_that_no_run_can_use_is_one_sentence_that_names_its_setting(settings, weights, tmp_path):
    """Catches a traceback, an hour of decoding before it, memory that runs out, and a word taken for true."""
    cfg = composed("evaluate", f"paths.weights={weights}", *SMALL, *settings.split())
    with pytest.raises(CompactHydraException) as caught:
        in_one_sentence(lambda cfg: run_setting(cfg, "llamagen", tmp_path, None))(cfg)
    assert NAMED.get(settings, settings.split()[-1].split("=")[0].split(".")[-1].lstrip("+")) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "prompts.jsonl").exists()


@pytest.mark.parametrize("added", [
    "+foo=3", "+speed.num_promts=1", "+quality.images=8", "++sweep.axis=1", "+foo=1,2", "+sampler.top_k=5",
    "+qualty.num_images=8", "+data.folder=x", "++sampler.top_k=5",
])  # fmt: skip
def test_a_key_that_nothing_reads_is_refused(added):
    """Catches a mistyped setting behind a plus, which Hydra adds and no run uses."""
    with pytest.raises(LanternError, match="adds a setting that nothing reads"):
        check_added([added], {"model": "llamagen", "method": "jacobi"})


@pytest.mark.parametrize("added", [
    "+batch_size=16", "+rendered.num_trian=8", "++distil.width=2", "+sweep.axis=1", "+trainr.max_steps=3",
    "+quality.num_images=8",
])  # fmt: skip
def test_a_key_that_no_training_reads_is_refused(added):
    with pytest.raises(LanternError, match=r"adds a setting that nothing reads; see train\.py --help"):
        check_added([added], {"model": "llamagen", "sweep": "recipe"}, "train")


@pytest.mark.parametrize(("command", "added"), [
    ("evaluate", "+data=imagefolder"), ("evaluate", "+recipe=hass"), ("evaluate", "+captions=disk"),
    ("train", "+acceptance=lantern"), ("train", "+method=jacobi"), ("export", "+sweep=delta"),
])  # fmt: skip
def test_a_group_that_another_command_reads_is_refused(command, added):
    """Catches settings that seem to be taken, since Hydra lists an added group among the chosen ones."""
    group = added[1:].split("=")[0]
    with pytest.raises(LanternError, match=rf"\{added} adds a config group that {command}\.py does not read; leave it"):
        check_added([added], {"model": "llamagen", group: "x"}, command)
    check_added(["+mine=x"], {"mine": "x"}, command)  # of a folder given by --config-dir


def test_what_a_training_reads_may_be_added():
    read = [
        "+callbacks.latest.every_n_train_steps=1",
        "+logger.csv.flush_logs_every_n_steps=1",
        "+model.multiple_of=64",
    ]
    read += ["++rendered.num_train=8", "++distil.validation_depth=2", "+sweep.decoding.prompts=[a]", "++seed=3"]
    read += ["+captions=disk", "seed=1", "+recipe.layers=[1]", "+token_table.budget_gib=1", "+mine.own=1"]
    chosen = composed_with_hydra("train", "+captions=disk").hydra.runtime.choices
    check_added(read, [*chosen, "parts/mine@mine.part"], "train")


@pytest.mark.parametrize(("command", "settings"), [
    ("evaluate", ["+experiment=benchmark", "+sweep=delta"]), ("train", ["+sweep=recipe"]),
    ("train", ["features=disk", "+captions=disk", "data=webdataset"]), ("train", ["task=drafter_self"]),
    *(("train", [f"task={task}"]) for task in ("target", "tokenizer", "decoder", "critic")),
    *(("train", [f"task={task}_continuous", "model=scenes_continuous"]) for task in ("drafter", "target")),
    ("export", []),
])  # fmt: skip
def test_every_section_of_a_command_may_have_a_setting_added(command, settings):
    """Catches a section that a yaml brings and that is then told to be read by nothing."""
    cfg = composed_with_hydra(command, *settings)
    sections = [name for name in cfg if name != "hydra" and isinstance(cfg._get_node(name), DictConfig)]
    sections = [name for name in sections if cfg[name] is not None and name not in OWN[command]]
    check_added([f"+{name}.own=1" for name in sections], cfg.hydra.runtime.choices, command)


def test_what_a_group_or_a_constructor_reads_may_be_added_and_a_setting_that_exists_set_by_two_pluses():
    known = {"method": "jacobi", "sweep": "delta", "tree": "static"}
    check_added(["++speed.num_prompts=4", "++seed=3", "+tree.length=4", "+study.trees.x.length=2"], known)
    check_added(["+method=jacobi", "+sweep=field", "++tree.length=3", "+tree@published=eagle2", "seed=3"], known)


def test_a_tree_that_changes_nothing_is_told(caplog):
    """Catches a sweep over a window's tree, three times the same setting under three names."""
    window = composed("evaluate", "drafter=refined_jacobi", "tree=chain")
    tell_unused_tree(["+method=jacobi", "tree@published=chain"], window)
    tell_unused_tree(["tree=auto"], composed("evaluate", "drafter=refined_jacobi", "tree=auto"))
    tell_unused_tree(["tree.length=3"], composed("evaluate", "tree=chain"))
    assert not caplog.records
    tell_unused_tree(["seed=1", "tree.length=3"], window)
    assert "tree.length=3 changes nothing: this drafter grows no tree" in caplog.text


def test_the_likeliest_code_is_in_every_nucleus():
    """Catches a law of NaN, where a tiny top_p becomes 0 in float32."""
    law = Sampling(top_p=1e-300).law(torch.tensor([[0.0, 3.0, 2.9]]))
    assert law.tolist() == [[0, 1, 0]]
