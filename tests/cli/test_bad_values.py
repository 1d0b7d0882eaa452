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


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_tiny_weights(tmp_path_factory.mktemp("weights"))


@pytest.mark.parametrize(("settings", "sentence"), [
    ("speed.num_prompts=1000000000000", "speed.num_prompts=1000000000000 is more than one run makes; give 1000000"),
    ("speed.num_prompts=-1", "speed.num_prompts=-1 is no number of images; use 0 to switch the part off"),
    ("speed.num_prompts=true", "speed.num_prompts=True is no number of images"),
    ("speed.num_prompts=1.5", "speed.num_prompts=1.5 is no number of images"),
    ("quality.num_images=1k", "quality.num_images=1k is no number of images"),
    ("quality.num_images=1e3", "quality.num_images=1000.0 is no number of images"),
    ("speed.max_retimed=-1", "speed.max_retimed=-1: give 0 … 5"),
    ("speed.compiled_baseline=maybe", "speed.compiled_baseline=maybe is no switch; give true or false"),
    ("speed=null", "speed=None is no section; speed.num_prompts=0 switches the part off"),
    ("quality.num_images=1", "quality.num_images=1 is too few to judge by; use at least 8"),
    ("quality.num_images=1000000000000", "quality.num_images=1000000000000 is more than one run makes"),
    ("quality.num_images=8 metrics.fidelity.num_references=0", "num_references=0: give a whole number from 8"),
    ("quality.num_images=8 metrics.fidelity.resamples=true", "resamples=True: give a whole number from 1"),
    ("quality.num_images=8 metrics.fidelity.resamples=1000000000000", "resamples=1000000000000: give a whole number"),
    ("quality.num_images=8 metrics=[fidelity,clip_score]",
     "error: metrics.clip_score.network.folder has no value; give metrics.clip_score.network.folder="),
    ("quality.num_images=8 metrics=[fidelity_inception]",
     "error: metrics.fidelity.extractor.weights has no value; give metrics.fidelity.extractor.weights="),
    ("quality.num_images=8 metrics.fidelity=3", "metrics.fidelity=3 is no metric; metrics.fidelity=null switches it"),
    ("output_tv.num_positions=1.5", "num_positions=1.5"),
    ("output_tv.num_positions=true", "num_positions=True"),
    ("output_tv.redraws=1000000000000", "give 1 or more each, 100000 redraws at most"),
    ("batch_size=0", "batch_size=0 is no number of images; give a whole number of at least 1"),
    ("lease_s=true", "lease_s=True is no time; give seconds"),
    ("batch_size=all", "batch_size=all is no number of images"),
    ("shards=x", "shard=0 of shards=x: give 0 <= shard < shards"),
    ("seed=true", "seed=True is no whole number"),
    ("device=meta", "device=meta computes no values; give device=cpu"),
    ("compile=maybe", "compile=maybe is no switch; give true or false"),
    ("tf32=1", "tf32=1 is no switch; give true or false"),
    ("split=null", "split=None is unknown; give one of all, dev, test"),
    ("prompts=[]", "the prompt list holds no prompts"),
    ("prompts=/nowhere.txt", "prompts=/nowhere.txt cannot be read (No such file or directory); give a text file"),
    (f"prompts={300 * 'x'}", "cannot be read (File name too long); give a text file with a prompt a line"),
    ("prompts=[sphinx]", "unknown word 'sphinx' in 'sphinx'; the embedded scenes know a on"),
    ("prompts=[sphinx] quality.num_images=0", "unknown word 'sphinx' in 'sphinx'; this model knows a on"),
    ("sampling.temperature=null", "sampling.temperature=null is not a number; leave it out for the default"),
    ("sampling.temperature=1e-300", "sampling.temperature=1e-300 makes logits infinite; use 0 for greedy decoding"),
    ("sampling.temperature=nan", "sampling.temperature=nan is not finite"),
    ("sampling.cfg_scale=inf", "sampling.cfg_scale=inf is not finite"),
    ("sampling.cfg_scale=1e300", "sampling.cfg_scale=1e+300 is out of range; give 10000.0 at most"),
    ("acceptance=lantern acceptance.delta=inf", "acceptance.delta=inf is a probability mass"),
    ("acceptance.lam=inf", "acceptance.lam=inf multiplies a token's own probability"),
    ("acceptance.lam=0.5", "acceptance.lam=0.5 multiplies a token's own probability; give a value of 1 or more"),
    ("acceptance.k=null", "acceptance.k=null is not a whole number; leave it out for the default"),
    ("acceptance.k=true", "acceptance.k=True is no whole number; give one"),
    ("acceptance=vvs acceptance.skip=true", "acceptance.skip=True levels are committed unjudged"),
    ("acceptance=vvs acceptance.skip=1.5", "acceptance.skip=1.5 levels are committed unjudged"),
    ("acceptance=cool_sd acceptance.mu=-1e300", "acceptance.mu=-1e+300 is out of range"),
    ("acceptance=exact +acceptance.k=3", "acceptance.k=3 is unknown to Exact, which has no settings; leave it out"),
    ("acceptance=tv_budget +acceptance.k=3", "acceptance.k=3 is unknown to TvBudget, which takes eps; leave it out"),
    ("acceptance=lantern +acceptance.lam=3", "lam=3 is unknown to Lantern, which takes k, delta; leave it out"),
    ("+tree.length=3", "tree.length=3 is unknown to StaticTree, which takes paths, name; leave it out"),
    ("drafter=none +drafter.length=3", "drafter.length=3 is unknown to NoDrafter, which has no settings"),
    ("drafter=none +acceptance.delta=0.1", "delta=0.1 is unknown to LanternPP, which takes k, lam; leave it out"),
    ("+drafter.width=3 acceptance=exact", "width=3 is unknown to load_eagle, which takes checkpoint"),
    ("+budget.k=3", "budget.k=3 is unknown to Budget, which takes within, losses, proven, min_images"),
    ("tree=ddd tree.tau=nan", "tree.tau=nan is no log of a probability"),
    ("tree=ddd tree.checks=[true]", "tree.checks=[True] must be levels"),
    ("tree.paths=[[false]]", "path [False] of the static tree is no list of ranks"),
    ("tree=ddd tree.checks=abc", "tree.checks=['a', 'b', 'c'] must be levels"),
    ("drafter=jacobi drafter.start=null", "drafter.start=null is not a value; leave it out for the default"),
    ("drafter.checkpoint=3", "drafter.checkpoint=3 is not a name or a path"),
    ("drafter.checkpoint=/nowhere", "nothing at drafter.checkpoint=/nowhere; give the path of the model (about"),
    ("budget.within.frechet=nan", "budget.within.frechet=nan is no limit"),
    ("budget.within.frechet=true", "budget.within.frechet=True is no limit"),
    ("budget.within.frechet=-1", "budget.within.frechet=-1 is negative"),
    ("budget.min_images=many", "budget.min_images=many, proven=False: give a whole number"),
    ("study=3", "study=3 is no study; choose one by +experiment=…"),
    ("prompts=['${x}']", "prompts[0]: Interpolation key 'x' not found; write \\${…} for a text that has one"),
    ("prompts=['${a:b}']", "prompts[0]: Unsupported interpolation type a; write \\${…} for a text that has one"),
    ("device=null", "device=null is no device; give auto, cpu or cuda"),
    ("tracking.mode=foo", "tracking.mode=foo is unknown; give one of auto, online, offline, disabled"),
])  # fmt: skip
def test_a_value_that_no_run_can_use_is_one_sentence(settings, sentence, weights, tmp_path):
    """Catches a traceback, an hour of decoding before it, memory that runs out, and a word taken for true."""
    cfg = composed("evaluate", f"paths.weights={weights}", *SMALL, *settings.split())
    with pytest.raises(CompactHydraException) as caught:
        in_one_sentence(lambda cfg: run_setting(cfg, "llamagen", tmp_path, None))(cfg)
    assert sentence in str(caught.value)
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
