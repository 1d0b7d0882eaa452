"""The decoding loop on a tiny LlamaGen: what it decodes depends on prompt, seed and settings alone."""

import json

import pytest
import torch
from support import toy
from support.paths import GOLDEN
from support.toy import CODES, PROMPTS, SEEDS, plain_tokens, tiny_eagle, tiny_target

from lantern.acceptance.exact import Exact
from lantern.decoding import DecodingSetup, first_rounds, generate
from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError
from lantern.evaluation.speed import tokens_per_step
from lantern.sampling import Sampling
from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.types import Generation, Round
from lantern.verification import Ratio, SharedNoise

PAPER_FIGURES = json.loads((GOLDEN / "static_trees.json").read_text())
TREES = {name: StaticTree(PAPER_FIGURES[name]) for name in PAPER_FIGURES} | {
    "chain": chain(5),
    "eagle2": Eagle2Tree(20, 4, 5),
    "ddd": DDDTree(20, 5, 5, -2.0, [1, 2, 3, 4]),
    "adaptive": AdaptiveTree(20, 5, 5, 3),
}
SETTINGS = {
    "sampled": Sampling(),
    "greedy": Sampling(temperature=0),
    "top_k": Sampling(top_k=5),
    "top_p": Sampling(top_p=0.8),
    "warm": Sampling(temperature=1.3, top_k=12, top_p=0.9),
    "unguided": Sampling(cfg_scale=1.0),
    "greedy-unguided": Sampling(temperature=0, cfg_scale=1.0),
}


def decode(tree, sampling, verification=None, images: int = 8, batch_size: int = 3, dtype=torch.float64) -> Generation:
    """The eight prompts' images, and further images of the same prompts. tree None is plain decoding."""
    target = tiny_target(sampling.cfg_scale, dtype)
    drafter = NoDrafter() if tree is None else tiny_eagle(target, tree, sampling)
    prompts, seeds = [PROMPTS[i % 8] for i in range(images)], [SEEDS[i % 8] + 1000 * (i // 8) for i in range(images)]
    return toy.decode(target, drafter, sampling, batch_size, verification, prompts=prompts, seeds=seeds)


def plain_images(prompts, seeds, batch_size: int = 3) -> torch.Tensor:
    return toy.decode(tiny_target(), NoDrafter(), Sampling(), batch_size, prompts=prompts, seeds=seeds).tokens


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("tree", ["chain", "eagle2", "naive_extend_57"])
def test_shared_noise_decodes_the_tokens_of_plain_decoding(tree, setting):
    """Catches anything that makes a draft visible in the output: masks, rotary positions, caches, noise."""
    found = decode(TREES[tree], SETTINGS[setting])
    assert torch.equal(found.tokens, plain_tokens(SETTINGS[setting]))
    if setting == "sampled":
        assert found.tokens_per_step > 1.5  # something was accepted, or nothing was tested


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("setting", ["sampled", "greedy"])
def test_shared_noise_equals_plain_decoding_in_float32(tree, setting):
    """Catches a loss of precision beyond rounding: a mask in half precision, logits guided in another order."""
    found = decode(TREES[tree], SETTINGS[setting], dtype=torch.float32, batch_size=8)
    assert torch.equal(found.tokens, plain_tokens(SETTINGS[setting], torch.float32))


def test_another_seed_and_another_prompt_give_another_image():
    """Catches noise that ignores the seed and a prefix that ignores the prompt."""
    images = plain_images(["a b", "c", "a b"], [1, 1, 2])
    assert not torch.equal(images[0], images[1])
    assert not torch.equal(images[0], images[2])


@pytest.mark.parametrize("tree", [None, "chain", "mc_sim_7b_63", "eagle2"])
@pytest.mark.parametrize("verification", [Ratio(), SharedNoise()], ids=["ratio", "shared_noise"])
def test_the_counts_of_a_generation_agree(tree, verification):
    """Catches tokens per step that count the prefill's token or tokens beyond the end, and unrecorded rounds."""
    found = decode(tree and TREES[tree], Sampling(), verification)
    images, length = found.tokens.shape
    assert sum(len(turn.accepted) for turn in found.rounds) == int(found.steps.sum())
    committed = sum(accepted + 1 for turn in found.rounds for accepted in turn.accepted)
    assert committed == images * (length - 1)  # exactly: nothing beyond the tokens left is committed
    assert found.tokens_per_step == pytest.approx(committed / int(found.steps.sum()))
    assert ((found.tokens >= 0) & (found.tokens < CODES)).all()
    if tree is None:
        assert found.tokens_per_step == 1
        assert found.steps.tolist() == [length - 1] * images
        assert found.drafter_forwards == 0


@pytest.mark.parametrize("tree", ["chain", "eagle2", "ddd"])
def test_the_nodes_of_an_image_do_not_depend_on_the_rest_of_the_batch(tree):
    """Catches padding that is counted: of rows near their end, and beside a larger tree."""
    alone, together = (decode(TREES[tree], Sampling(), images=16, batch_size=size) for size in (1, 3))
    assert sum(turn.num_judged for turn in alone.rounds) == sum(turn.num_judged for turn in together.rounds)
    assert any(turn.num_judged < turn.nodes * len(turn.paths) for turn in together.rounds)  # there is padding


def test_a_free_row_is_taken_at_once_while_a_prompt_waits():
    """Catches a batch that is drained before the next prompts are let in."""
    found, seen = decode(TREES["mc_sim_7b_63"], Sampling(), images=16), set()
    for turn in found.rounds:
        seen.update(turn.images)
        assert len(turn.images) == 3 or len(seen) == 16
    assert len({int(steps) for steps in found.steps}) > 1  # rows do end at different times


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("verification", [Ratio(), SharedNoise()], ids=["ratio", "shared_noise"])
def test_nothing_is_drafted_beyond_room(tree, verification):
    """Catches tokens beyond the last position: a node needs room for itself and the verdict's token behind it."""
    seen = []

    class Watched:
        name, proposals, head_s = verification.name, verification.proposals, 0.0

        def __call__(self, grown, probs, rule, noise):
            tokens_left = 16 - (noise.position + 1)
            real = grown.parents >= 0
            assert not (real & (grown.depths >= tokens_left[:, None])).any()
            seen.append(int(real.sum()))
            return verification(grown, probs, rule, noise)

    decode(TREES[tree], Sampling(), Watched())
    assert max(seen) > 0


def test_a_chain_longer_than_the_image_decodes():
    """Catches a cache or a ring sized by the image and not by the tree."""
    found = decode(chain(20), Sampling())
    assert torch.equal(found.tokens, plain_tokens(Sampling()))


@pytest.mark.parametrize(("prompts", "seeds", "batch_size", "sentence"), [
    ([], [], 1, "prompts=.. has none"), (["a"], [1, 2], 1, "seeds: .; give"),
    (["a", "b"], [1], 2, "seeds: .; give"), (["a"], [1], 0, "batch_size=0 is out of range; give"),
])  # fmt: skip
def test_empty_or_uneven_input_is_one_clear_error(prompts, seeds, batch_size, sentence):
    """Catches a crash inside the loop, and a batch size that is told as a lack of seeds."""
    with pytest.raises(LanternError, match=sentence):
        plain_images(prompts, seeds, batch_size)


def test_the_first_rounds_are_those_of_the_whole():
    """Catches rounds timed on a batch that stands elsewhere, or decodes otherwise, than the images it stands for."""
    target = tiny_target()
    drafter = tiny_eagle(target, TREES["chain"], Sampling())
    parts = (DecodingSetup(target, drafter, SharedNoise(), Exact(), Sampling()), PROMPTS[:3], SEEDS[:3])
    whole = generate(*parts, batch_size=3).rounds
    assert [record.paths for record in first_rounds(*parts, 2)] == [record.paths for record in whole[:2]]
    assert len(first_rounds(*parts, 99)) < 16  # and they end where an image does


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_target_in_half_precision_decodes_with_a_drafter_as_without_one_but_for_near_ties(dtype):
    """Catches a cast that is missing, and masks or laws that overflow."""
    target, sampling = tiny_target(dtype=dtype), Sampling()
    drafter = tiny_eagle(target, StaticTree([[0], [1], [0, 0]]), sampling)
    drafted, plain = (
        toy.decode(target, part, sampling, 2, prompts=["a", "b c", "d"]).tokens for part in (drafter, NoDrafter())
    )
    assert (drafted == plain).float().mean() > 0.8


def test_a_generation_is_told_in_a_line_and_compared_without_an_error():
    """Catches pages of rounds on a terminal, and the truth value of a tensor."""
    record = Round([[0, 1], [0]], 2, 1.0, 1.0, 1.0)
    found, other = (Generation(torch.zeros(3, 16), [record] * 138, torch.tensor([3, 3, 3]), 1.518, 0) for _ in range(2))
    assert repr(found) == "Generation(3 images, 5.00 tokens per step, 138 rounds, 1.52 s)"
    assert found == found
    assert found != other


def test_images_that_end_with_the_prefill_have_no_tokens_per_step():
    """Catches a division by no steps."""
    found = Generation(torch.zeros(2, 1), [], torch.tensor([0, 0]), 0.1, 0)
    assert found.tokens_per_step is tokens_per_step([{"steps": 0}] * 2, 1) is None
    assert repr(found) == "Generation(2 images, 0.00 tokens per step, 0 rounds, 0.10 s)"
