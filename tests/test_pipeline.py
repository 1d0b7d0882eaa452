"""The assembled pipeline: its description, which parts it rejects, and which drafters fit a target."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from support.configs import composed
from support.paths import CONF
from support.toy import DIM, PROMPTS, tiny_eagle, tiny_target

from lantern.acceptance.cool_sd import CoolSD
from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.acceptance.synthetic import Synthetic
from lantern.acceptance.tv_budget import TvBudget
from lantern.acceptance.typical import Typical
from lantern.acceptance.vvs import VVS
from lantern.continuous.gaussian_shared import Tolerance
from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.loading import load_eagle
from lantern.drafters.none import NoDrafter
from lantern.errors import CheckpointError, LanternError
from lantern.evaluation.rows import run_name, setting_id
from lantern.models.checkpoints import save_weights, weights_hash
from lantern.pipeline import Pipeline, check_skip, pipelines
from lantern.reporting.table import label_rows
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.verification import Ratio, SharedLaw, SharedNoise, choose_by_rule, choose_published, choose_shared_noise
from lantern.verification.block import Block
from lantern.verification.longest_path import LongestPath
from lantern.verification.ratio import RatioProposals
from lantern.verification.runs import Runs
from lantern.verification.traversal import Traversal

KEYS = [
    "model", "drafter", "drafter_hash", "tree", "verification", "acceptance", "lossless", "k", "delta", "lam",
    "temperature", "top_k", "top_p", "cfg_scale",
]  # fmt: skip
TREE = StaticTree([[0], [1], [0, 0]], name="small")
BY_RULE = partial(choose_by_rule)


class NewTree(StaticTree):
    """A tree policy that no exact-law test covers."""

    def __init__(self) -> None:
        super().__init__([[0]])
        self.kind = "new"


class NewVerification(Ratio):
    """A verification that no exact-law test covers."""


def joined(rule=None, tree=TREE, verification=BY_RULE, sampling=None) -> Pipeline:
    target, sampling = tiny_target(), sampling or Sampling()
    drafter = NoDrafter() if tree is None else partial(tiny_eagle)
    return pipelines(target, drafter, rule or Exact(), verification, sampling, "tiny")(tree)


def test_a_rule_without_what_a_rule_needs_is_one_clear_error():
    """Catches a rule of one's own that ends in a traceback at the first token."""
    rule = SimpleNamespace(name="boost", verification="ratio", lossless=False, relax=lambda p, x: p)
    with pytest.raises(LanternError, match=r"is no AcceptanceRule of lantern/types\.py; give it parameters, judge"):
        joined(rule)


def test_a_pipeline_describes_itself_with_the_keys_of_a_result_row():
    """Catches a key that is missing, renamed, or filled from the wrong part."""
    pipeline = joined(partial(Lantern, k=5, delta=0.1), sampling=Sampling(top_k=9, cfg_scale=3.0))
    described = pipeline.describe()
    assert list(described) == KEYS
    assert list(described.values()) == [
        "tiny", "eagle", "tiny-drafter", "small", "ratio", "lantern", False, 5, 0.1, None, 1.0, 9, 1.0, 3.0,
    ]  # fmt: skip
    assert pipeline.target.cfg_scale == 3.0
    baseline = pipeline.baseline().describe()
    assert list(baseline) == KEYS
    assert [baseline[key] for key in ("drafter", "tree", "verification", "acceptance", "lossless", "k")] == [
        "none", "none", "shared_noise", "exact", True, None,
    ]  # fmt: skip


@pytest.mark.parametrize("tree", [None, TREE])
def test_plain_decoding_is_the_baseline_whatever_rule_would_judge_drafts(tree):
    """Catches a second row of plain decoding, marked as lossy, for each rule it is run under."""
    parts = tiny_target(), NoDrafter(), partial(LanternPP, k=5, lam=2.0), BY_RULE, Sampling()
    plain = pipelines(*parts)(tree)
    assert plain.describe() == plain.baseline().describe()
    assert plain.describe()["lossless"]


@pytest.mark.parametrize(
    ("rule", "tree", "verification", "lossless"),
    [
        (Exact(), None, SharedNoise(), True), (Exact(), chain(3), Ratio(), True), (Exact(), TREE, SharedNoise(), True),
        (Exact(), Eagle2Tree(4, 2, 2), Ratio(), True), (partial(Lantern, k=0, delta=0.5), TREE, Ratio(), True),
        (partial(Lantern, k=5, delta=0.0), TREE, Ratio(), True),
        (partial(LanternPP, k=5, lam=1.0), Eagle2Tree(4, 2, 2), Ratio(), True), (Exact(), chain(3), Block(), True),
        (TvBudget(0.0), TREE, partial(choose_shared_noise), True),
        (TvBudget(0.1), TREE, partial(choose_shared_noise), False), (TvBudget(0.1), chain(3), Block(), False),
        (partial(Lantern, k=5, delta=0.1), TREE, Ratio(), False),
        (partial(LanternPP, k=5, lam=2.0), TREE, SharedNoise(), False), (Exact(), NewTree(), Ratio(), False),
        (Exact(), TREE, NewVerification(), False),
    ],
)  # fmt: skip
def test_lossless_is_claimed_only_where_an_exact_law_test_covers_the_combination(rule, tree, verification, lossless):
    """Catches the claim inherited by a rule, tree or verification that nobody has shown to be exact."""
    assert joined(rule, tree, verification).describe()["lossless"] is lossless


@pytest.mark.parametrize(
    ("rule", "temperature", "by_default", "as_published"),
    [
        (Exact(), 1.0, SharedNoise, Ratio), (Exact(), 0.0, SharedNoise, SharedNoise),
        (partial(Lantern, k=5, delta=0.1), 1.0, Ratio, Ratio), (partial(LanternPP, k=5, lam=2.0), 1.0, Ratio, Ratio),
        (partial(LanternPP, k=5, lam=2.0), 0.0, SharedNoise, SharedNoise), (TvBudget(0.1), 1.0, Ratio, Ratio),
        (TvBudget(0.1), 0.0, SharedLaw, SharedLaw), (Typical(0.1, 0.3), 1.0, SharedNoise, Ratio),
    ],
)  # fmt: skip
def test_verification_is_by_default_the_way_of_the_rule_and_in_published_rows_that_of_the_papers(
    rule, temperature, by_default, as_published
):
    """Catches relaxed rules judged otherwise than their papers do, EAGLE-2 as published that profits from shared noise,
    and coins tossed in greedy decoding."""
    sampling = Sampling(temperature=temperature)
    assert type(joined(rule, sampling=sampling).verification) is by_default
    assert type(joined(rule, verification=partial(choose_published), sampling=sampling).verification) is as_published


def test_a_rule_that_neither_default_judges_by_names_the_verification_that_does():
    """Catches a default that is stated and not taken: ratio would fail at the first token."""
    with pytest.raises(LanternError, match=r"acceptance=tolerance is judged by neither; give .*=gaussian_shared"):
        choose_by_rule(Tolerance(0.1), Sampling())


def test_a_rules_further_parameters_are_described_by_their_config_names():
    """Catches a parameter that a row lacks, so that two settings of a rule share a row."""
    rows = [joined(CoolSD(1.1, nu, 0.0)).describe() for nu in (0.7, 0.2)]
    assert list(rows[0]) == [*KEYS, "acceptance.nu", "acceptance.mu"]
    assert [rows[0][key] for key in ("k", "delta", "lam", "acceptance.nu")] == [None, 1.1, None, 0.7]
    assert setting_id(rows[0]) != setting_id(rows[1])
    assert label_rows(rows) == ["ν 0.7", "ν 0.2"]
    assert run_name(rows[0]) == "tiny/cool_sd/small/d1.1-mu0-nu0.7"
    assert run_name(joined(Synthetic([0.7, 0.6])).describe()) == "tiny/synthetic/small/0.7 0.6"


class Strangers:
    """A verification of a user, which tosses coins and does not say so."""

    name, head_s, proposals = "shared_noise", 0.0, RatioProposals

    def __call__(self, tree, probs, rule, noise):
        return Ratio()(tree, probs, rule, noise)


COINS = [Ratio(), Block(), Traversal(), LongestPath(), Runs(0.8), Strangers()]


@pytest.mark.parametrize("verification", COINS, ids=lambda verification: verification.name)
def test_coins_in_greedy_decoding_are_one_clear_error(verification):
    """Catches a list of classes that toss coins, on which a stranger's is not."""
    with pytest.raises(LanternError, match="use verification=shared_noise"):
        joined(verification=verification, sampling=Sampling(temperature=0))


RULES_OF_CODES = sorted({path.stem for path in (CONF / "acceptance").glob("*.yaml")} - {"tolerance"})  # of latents
VERIFICATIONS = {"by rule": BY_RULE, "ratio": Ratio(), "shared noise": partial(choose_shared_noise), "block": Block()}


@pytest.mark.parametrize("name", RULES_OF_CODES)
def test_every_configured_rule_decodes_or_is_one_clear_error(name):
    """Catches a yaml that does not fit its class, a name that differs from its file, a rule that fails in the loop."""
    config = composed("evaluate", f"acceptance={name}").acceptance
    config.update({key: 5 for key in ("k", "g") if key in config})  # the tiny target has 24 codes
    for verification in VERIFICATIONS.values():
        pipeline = joined(instantiate(config), chain(3), verification)
        assert pipeline.rule.name == name
        given = {key: value for key, value in config.items() if not key.startswith("_")}
        texts = {key: " ".join(map(str, value)) for key, value in given.items() if OmegaConf.is_list(value)}
        assert pipeline.rule.parameters == given | texts
        forms = ("law",) if isinstance(verification, Block) else ("law", "relax")
        has_form = pipeline.rule.lossless or any(hasattr(pipeline.rule, form) for form in forms)
        if not has_form and not isinstance(pipeline.verification, Ratio):
            with pytest.raises(LanternError, match="use verification=ratio"):
                pipeline.generate(PROMPTS[:2], [1, 2], 2)
        else:
            assert pipeline.generate(PROMPTS[:2], [1, 2], 2).tokens_per_step > 1


def saved_drafter(folder, **changes):
    """A weights folder of a drafter made for the tiny target, its config changed."""
    config = {"dim": DIM, "num_heads": 2, "hidden_dim": 96, "vocab_size": 24, "target_hash": "tiny-target"}
    network = EagleNetwork(DIM, 2, 96)
    save_weights(folder, network.state_dict(), config | changes)
    return folder


def test_a_drafter_made_for_the_target_loads_and_decodes(tmp_path):
    """Catches a loader that rejects its own drafters, and a description without their hash."""
    target, folder = tiny_target(), saved_drafter(tmp_path)
    drafter = load_eagle(folder, target, TREE, Sampling())
    assert drafter.weights_hash == weights_hash(folder)
    pipeline = Pipeline(target, drafter, SharedNoise(), Exact(), Sampling())
    found, plain = (part.generate(PROMPTS[:2], [1, 2], 2).tokens for part in (pipeline, pipeline.baseline()))
    assert torch.equal(found, plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 48}, "dim=48"), ({"target_hash": "another"}, "target_hash=another"), ({"dim": None}, "dim=None"),
        ({"hidden_dim": 128}, "mis-shaped"),
    ],
)  # fmt: skip
def test_a_drafter_made_for_another_target_is_one_clear_error(tmp_path, changes, message):
    """Catches a drafter that would run and merely never be right, and tracebacks out of load_state_dict or rotary
    positions."""
    with pytest.raises(CheckpointError, match=message):
        load_eagle(saved_drafter(tmp_path, **changes), tiny_target(), TREE, Sampling())
    with pytest.raises(CheckpointError, match=r"drafter\.checkpoint=.*/none"):
        load_eagle(tmp_path / "none", tiny_target(), TREE, Sampling())


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(cfg_scale=1.0)], ids=["guided", "unguided"])
def test_a_random_drafter_has_heads_as_wide_as_the_target_s(sampling):
    """Catches heads of another width than the positions', with which the first pass over the prefix fails."""
    target = tiny_target(sampling.cfg_scale)
    drafter = load_eagle("random", target, TREE, sampling)
    pipeline = Pipeline(target, drafter, SharedNoise(), Exact(), sampling)
    assert drafter.network.attention.num_heads == target.transformer.num_heads == 2
    assert torch.equal(*(part.generate(PROMPTS[:2], [1, 2], 2).tokens for part in (pipeline, pipeline.baseline())))


def test_a_rule_that_would_judge_nothing_is_one_clear_error():
    """Catches a drafter's own images, reported as a fast method of the target's."""
    check_skip(joined(VVS(1)))
    with pytest.raises(LanternError, match=r"skip=2 leaves no draft to judge, 2 deep; give 1 at most"):
        check_skip(joined(VVS(2)))
    check_skip(joined(VVS(2), tree=None))
