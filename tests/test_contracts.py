"""The protocols of lantern.types are whole: a target that implements Target alone is decoded, drafted for and
evaluated; code that needs more names the capability."""

from functools import partial
from pathlib import Path

import pytest
import torch
from support.evaluations import evaluation
from support.toy import tiny_eagle, tiny_target
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.drafters.eagle.feature_drafter import layered
from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.jacobi.jacobi import Jacobi, redraw, redraw_coupled
from lantern.drafters.jacobi.proactive import ProactiveJacobi
from lantern.drafters.jacobi.refined import RefinedJacobi
from lantern.drafters.jacobi.starts import Left, Nearest, Uniform
from lantern.drafters.none import NoDrafter
from lantern.engine.graphs import EagerPasses
from lantern.errors import LanternError
from lantern.evaluation.rows import is_baseline
from lantern.laws.tables import TableDrafter
from lantern.metrics.visits import RecordingDrafter
from lantern.pipeline import Pipeline, PipelineFactory, pipelines
from lantern.row_parallel import RowParallel
from lantern.sampling import Sampling
from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.types import Drafter, DraftTree, Forward, Target, Verdict
from lantern.verification import Ratio, SharedNoise

PROMPTS, SEEDS = ["a", "b c", "d e f", "gh"], [1, 2, 3, 4]
STATIC = StaticTree([[0], [1], [0, 0], [0, 1], [0, 0, 0]])


class StubTarget:
    """The law of a token depends on the prompt, its position and the token before it. Implements Target, no more."""

    vocab_size, num_tokens, grid = 4, 6, (2, 3)
    weights_hash, held_bytes, compiles, passes = "stub", 0, False, EagerPasses()

    def __init__(self, cfg_scale: float = 2.0) -> None:
        generator = torch.Generator().manual_seed(0)
        self.embed_weight, self._positions = torch.randn(2, 4, 6, generator=generator, dtype=torch.float64)
        self.codebook, self.cfg_scale, self.guidance = self.embed_weight, cfg_scale, 1 if cfg_scale == 1 else 2

    def configured(self, cfg_scale: float, compiled: bool = False) -> "StubTarget":
        return StubTarget(cfg_scale)

    def image_bytes(self, num_nodes: int) -> int:
        return 0

    def allocate(self, batch_size: int, num_nodes: int) -> None:
        self._prompt = self.embed_weight.new_zeros(batch_size, 6)
        self._count = torch.zeros(batch_size, dtype=torch.long)

    def release(self) -> None:
        pass

    def _forward(self, x: Tensor, prompt: Tensor) -> Forward:
        features = torch.stack([x + prompt[:, None], x][: self.guidance], 1)
        return Forward(self.head(self.guide(features)), features)

    def prefill(self, prompts: list[str], rows: Tensor) -> Forward:
        self._prompt[rows] = self.embed_weight[[len(prompt) % 4 for prompt in prompts]]
        self._count[rows] = 0
        return self._forward(torch.zeros_like(self._prompt[rows, None]), self._prompt[rows])

    def verify(self, tree: DraftTree) -> Forward:
        positions = (self._count[:, None] + tree.depths) % 4
        return self._forward(self.embed(tree.tokens) + self._positions[positions], self._prompt)

    def commit(self, verdict: Verdict) -> None:
        self._count = self._count + verdict.num_committed

    def keep(self, rows: Tensor) -> None:
        self._prompt, self._count = self._prompt[rows], self._count[rows]

    def empty_tokens(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.long)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.embed_weight[tokens]

    def guide(self, features: Tensor) -> Tensor:
        return features[:, -1] + self.cfg_scale * (features[:, 0] - features[:, -1])

    def head(self, features: Tensor) -> Tensor:
        return features @ self.embed_weight.T

    def decode(self, tokens: Tensor) -> Tensor:
        return (tokens / 3).view(-1, 1, 2, 3).expand(-1, 3, -1, -1)


WINDOWS = {
    "sjd": partial(Jacobi, length=4, start=Uniform(), redraw=redraw),
    "jacobi": partial(Jacobi, length=4, start=Nearest(), redraw=redraw_coupled),
    "jacobi, left": partial(Jacobi, length=4, start=Left(), redraw=redraw_coupled),
    "sjd_pac": partial(ProactiveJacobi, length=4, levels=2, width=3, start=Nearest(), redraw=redraw_coupled),
}
TREES = {"chain": chain(3), "static": STATIC, "eagle2": Eagle2Tree(6, 3, 3), "adaptive": AdaptiveTree(6, 3, 3, 2)}
FEATURE_DRAFTERS = {
    "eagle": lambda target, tree, sampling: tiny_eagle(target, tree, sampling),
    "refined_jacobi": lambda target, tree, sampling: RefinedJacobi(
        EagleNetwork(6, 2, 8).double(), target, sampling, length=3, passes=1, share=0.5
    ),
}


def on_stub(drafter, verification=None) -> PipelineFactory:
    return pipelines(StubTarget(), drafter, Exact(), verification or SharedNoise(), Sampling(cfg_scale=3.0), "stub")


def members(protocol: type) -> set[str]:
    return {name for name in (*protocol.__annotations__, *vars(protocol)) if not name.startswith("_")}


def test_the_stub_implements_the_protocol_and_nothing_else():
    """Catches a test target that is more than the contract."""
    target = StubTarget()
    target.allocate(1, 1)
    assert {name for name in dir(target) if not name.startswith("_")} == members(Target)
    source = Path(__file__).read_text().split("class StubTarget:")[1].split("\nWINDOWS")[0]
    assert len(source.strip().splitlines()) < 60


@pytest.mark.parametrize("verification", [SharedNoise(), Ratio()], ids=["shared_noise", "ratio"])
def test_a_stub_target_decodes_plainly(verification):
    """Catches generic code that asks a target for more than the protocol states."""
    pipeline = on_stub(NoDrafter(), verification)(None)
    alone, together = (pipeline.generate(PROMPTS, SEEDS, size).tokens for size in (1, 3))
    assert torch.equal(alone, together)
    assert pipeline.target.cfg_scale == 3.0
    assert is_baseline(pipeline.describe())


@pytest.mark.parametrize("name", WINDOWS)
def test_drafters_without_a_capability_draft_for_a_stub_target(name):
    """Catches a window that asks its target for features, positions or weights."""
    made = on_stub(WINDOWS[name], Ratio() if name == "sjd" else SharedNoise())(STATIC)
    found = made.generate(PROMPTS, SEEDS, 3)
    assert found.tokens.shape == (4, 6)
    if name != "sjd":
        assert torch.equal(found.tokens, made.baseline().generate(PROMPTS, SEEDS, 3).tokens)
        assert found.tokens_per_step > 1
    assert not is_baseline(made.describe())


@pytest.mark.parametrize("verification", [SharedNoise(), Ratio()], ids=["shared_noise", "ratio"])
@pytest.mark.parametrize("tree", TREES)
def test_every_tree_grows_for_a_stub_target(tree, verification):
    """Catches a tree policy that asks its drafter or target for more than expansions."""
    made = on_stub(partial(TableDrafter), verification)(TREES[tree])
    found = made.generate(PROMPTS, SEEDS, 3)
    assert found.tokens.shape == (4, 6)
    if not isinstance(verification, Ratio):
        assert torch.equal(found.tokens, made.baseline().generate(PROMPTS, SEEDS, 3).tokens)


def test_a_drafter_that_reads_layers_says_what_it_lacks():
    """Catches an error in the middle of decoding: no such layer, or a target that hands none out."""
    with pytest.raises(LanternError, match=r"layers \[0, 2\], this target has 2; use one made for it"):
        tiny_eagle(tiny_target(), STATIC, Sampling(), layers=(0, 2))
    with pytest.raises(LanternError, match=r"StubTarget hands out no inputs of its layers.*recipe=eagle3"):
        layered(StubTarget())


def test_what_needs_more_than_the_protocol_says_so():
    """Catches an AttributeError where a capability is missing."""
    with pytest.raises(LanternError, match="StubTarget shares no positions with a drafter"):
        FEATURE_DRAFTERS["refined_jacobi"](StubTarget(), STATIC, Sampling())
    with pytest.raises(LanternError, match=r"sampling\.cfg_scale=5, the target guides by 2\.0"):
        Pipeline(StubTarget(), NoDrafter(), SharedNoise(), Exact(), Sampling(cfg_scale=5))
    pipeline = Pipeline(StubTarget(), RowParallel(2), SharedNoise(), Exact(), Sampling())
    with pytest.raises(LanternError, match="StubTarget reads tokens in raster order alone"):
        pipeline.generate(PROMPTS, SEEDS)


@pytest.mark.parametrize("name", ["none", *WINDOWS, "eagle"])
def test_drafters_state_all_that_generic_code_reads(name):
    """Catches a drafter without one of the protocol's fields, and a recording drafter that loses one."""
    target = tiny_target()
    if name in FEATURE_DRAFTERS:
        drafter = FEATURE_DRAFTERS[name](target, STATIC, Sampling())
    else:
        drafter = WINDOWS[name](target, sampling=Sampling()) if name in WINDOWS else NoDrafter()
    for part in (drafter, RecordingDrafter(drafter, 1)):
        assert {field for field in members(Drafter) if not hasattr(part, field)} == set()
        assert part.tree.name
        assert part.tree.kind


def test_a_stub_target_is_evaluated_to_a_row(tmp_path):
    """Catches an evaluation that needs more of a target, drafter or pipeline than their contracts state."""
    pipeline = on_stub(WINDOWS["jacobi"])(STATIC)
    plain, method = (measured.row for measured in evaluation(tmp_path, PROMPTS, 2, 4, 3).run(pipeline))
    assert (plain["drafter"], method["drafter"], method["tree"]) == ("none", "jacobi", "window_4")
    assert not method["lossless"]  # nobody has compared its passes
    assert method["law"].startswith("no certificate for test_contracts.StubTarget")
    assert method["tokens_per_step"] > plain["tokens_per_step"] == 1
