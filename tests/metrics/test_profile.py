from collections import Counter

import pytest
import torch
from support.toy import PROMPTS, SEEDS, decode, tiny_eagle, tiny_target

from lantern.acceptance.exact import Exact
from lantern.drafters.none import NoDrafter
from lantern.metrics.profile import Profile, RunningProfile, law_entropies
from lantern.pipeline import Pipeline
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree
from lantern.types import Generation
from lantern.verification import Ratio, SharedNoise

TREES = {
    "static": (StaticTree([[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]), Ratio()),
    "dynamic": (Eagle2Tree(total=9, depth=3, width=3), SharedNoise()),
    "none": (None, SharedNoise()),
}


def tiny_pipeline(tree=None, verification=None) -> Pipeline:
    target, sampling = tiny_target(), Sampling()
    drafter = tiny_eagle(target, tree, sampling) if tree else NoDrafter()
    return Pipeline(target, drafter, verification or SharedNoise(), Exact(), sampling)


def profile_of(pipeline: Pipeline, prompts: list[str], generations: list[Generation]) -> Profile | None:
    running, images = RunningProfile(pipeline), 0
    for generation in generations:
        running.add(prompts[images : images + len(generation.tokens)], generation)
        images += len(generation.tokens)
    return running.profile()


def counted_slowly(generations: list[Generation]) -> dict[str, Counter]:
    """Node by node, row by row, in the order of decoding."""
    found = {name: Counter() for name in ("committed", "depth", "rank", "position", "drafted", "taken")}
    for generation in generations:
        done = Counter({image: 1 for image in range(len(generation.tokens))})
        for a_round in generation.rounds:
            for image, path, parents in zip(a_round.images, a_round.paths, a_round.parents.tolist(), strict=True):
                children = {n: [c for c, parent in enumerate(parents) if parent == n] for n in range(len(parents))}

                def ranks(node, parents=parents, children=children):
                    return () if node == 0 else (*ranks(parents[node]), children[parents[node]].index(node))

                for node in range(len(parents)):
                    if parents[node] >= -1:
                        found["drafted"][ranks(node)] += 1
                for level, (node, below) in enumerate(zip(path, [*path[1:], None], strict=True)):
                    found["taken"][ranks(node)] += 1
                    if not children[node]:
                        continue
                    found["depth"][level, below is not None] += 1
                    found["position"][done[image] + level, below is not None] += 1
                    for rank, child in enumerate(children[node]):
                        found["rank"][rank, child == below] += 1
                        if child == below:
                            break
                done[image] += len(path)
                found["committed"][len(path)] += 1
    return found


def tally(counts: Counter) -> dict[str, list[int]]:
    judged = [0] * (1 + max((place for place, _ in counts), default=-1))
    accepted = list(judged)
    for (place, was_accepted), times in counts.items():
        judged[place] += times
        accepted[place] += times * was_accepted
    return {"judged": judged, "accepted": accepted}


@pytest.mark.parametrize("name", TREES)
def test_a_profile_counts_what_a_walk_over_every_node_counts(name):
    """Catches rows mistaken for images when a batch refills or shrinks, and ranks or positions off by one."""
    pipeline = tiny_pipeline(*TREES[name])
    alone = [pipeline.generate(PROMPTS[:1], SEEDS[:1], 1)]
    together = [pipeline.generate(PROMPTS, SEEDS, 3)]  # refills, then shrinks
    profile = profile_of(pipeline, [*PROMPTS[:1], *PROMPTS], [*alone, *together])
    slow = counted_slowly([*alone, *together])
    assert profile["images"] == 9
    assert {n: c for n, c in enumerate(profile["committed"]) if c} == dict(slow["committed"])
    assert profile["depth"] == tally(slow["depth"])
    assert profile["rank"] == tally(slow["rank"])
    length = len(profile["position"]["judged"])
    assert {k: v + [0] * (length - len(v)) for k, v in tally(slow["position"]).items()} == profile["position"]
    nodes = {tuple(node["path"]): (node["drafted"], node["accepted"]) for node in profile["tree"]}
    assert nodes == {path: (slow["drafted"][path], slow["taken"][path]) for path in slow["drafted"]}
    assert profile["nodes"] == len(nodes)
    assert sum(profile["committed"][n] * n for n in range(len(profile["committed"]))) == 9 * 15


def test_every_site_of_the_images_read_again_falls_into_the_bit_of_its_law():
    pipeline = tiny_pipeline(*TREES["static"])
    generation = pipeline.generate(PROMPTS, SEEDS, 3)
    profile = profile_of(pipeline, PROMPTS, [generation])
    assert profile["entropy_images"] == 8
    assert sum(profile["entropy"]["judged"]) == sum(profile["depth"]["judged"])
    assert sum(profile["entropy"]["accepted"]) == sum(profile["depth"]["accepted"])
    bits = law_entropies(pipeline.target, pipeline.sampling, PROMPTS, generation.tokens)
    assert profile["entropy_bits"] == pytest.approx(bits.mean(0).tolist(), abs=1e-3)


def test_entropies_are_those_of_the_laws_that_plain_decoding_drew_from(monkeypatch):
    """Catches a law taken one position early or late, and chunks that do not join."""
    target, sampling, seen = tiny_target(), Sampling(temperature=0.7), []

    class Spy(SharedNoise):
        def __call__(self, tree, probs, rule, noise):
            seen.append(torch.special.entr(probs[:, 0]).sum(-1) / torch.log(torch.tensor(2.0)))
            return super().__call__(tree, probs, rule, noise)

    made = decode(target, NoDrafter(), sampling, 3, Spy(), prompts=PROMPTS[:3])
    monkeypatch.setattr("lantern.metrics.profile.NODES_AT_ONCE", 6)
    found = law_entropies(target, sampling, PROMPTS[:3], made.tokens)
    assert found.shape == (3, 16)
    assert torch.allclose(found, torch.stack(seen, 1).to(found.dtype), atol=1e-9)
