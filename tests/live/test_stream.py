"""Model.stream: the tokens of generate, round by round."""

import gc
import threading
from itertools import islice, pairwise

import pytest
import torch

from lantern.errors import LanternError

PROMPT = "a red sphere on wood"
METHODS = {
    "plain": {"drafter": "none"},
    "tree": {"method": "static_shared"},
    "ratio tree": {"tree": "static", "verification": "ratio"},
    "dynamic tree": {"method": "eagle2_shared"},
    "window": {"method": "jacobi"},
    "refined window": {"method": "refined_jacobi"},
}
FAST = ("dynamic tree", "window")


@pytest.mark.parametrize(
    "parts", [pytest.param(METHODS[name], marks=[] if name in FAST else pytest.mark.full, id=name) for name in METHODS]
)
def test_every_round_adds_to_what_was_committed_and_the_stream_ends_with_the_tokens_of_generate(tiny, parts):
    """Catches values that share memory with later rounds, positions off by one, and padding shown as drafts."""
    values = list(tiny.stream(PROMPT, seed=3, **parts))
    made = tiny.generate([PROMPT], seed=3, **parts)
    assert torch.equal(values[-1].tokens, made.tokens[0])
    assert values[-1].is_complete
    assert values[-1].steps == int(made.statistics.steps)
    assert values[-1].tokens_per_step == pytest.approx(made.statistics.tokens_per_step)
    assert (values[0].committed, values[0].steps, len(values[0].drafts)) == (1, 0, 0)
    for before, after in pairwise(values):
        assert after.committed == before.committed + after.accepted + 1
        assert torch.equal(after.tokens[: before.committed], before.tokens[: before.committed])
        assert bool((after.tokens[after.committed :] == -1).all())
        assert torch.equal(after.positions, before.committed - 1 + after.depths)
        assert after.seconds == pytest.approx(before.seconds + after.ms / 1e3)
        for depth in range(1, after.accepted + 1):
            drafted = after.drafts[after.depths == depth]
            assert after.tokens[before.committed + depth - 1] in drafted
        assert len(after.drafts) == 0 or int(after.positions.max()) < len(after.tokens) - 1
    assert sum(len(value.drafts) for value in values) > 0 or parts == METHODS["plain"]


def test_decoding_goes_on_only_as_values_are_taken_and_ends_with_the_iterator(tiny, monkeypatch):
    """Catches decoding ahead of the caller, and a thread that outlives an abandoned stream."""
    passes, verify, threads = [], tiny.target.verify, threading.active_count()
    monkeypatch.setattr(tiny.target, "verify", lambda tree: passes.append(1) or verify(tree))
    stream = tiny.stream(PROMPT, method="jacobi")
    assert list(islice(stream, 4))[-1].steps == len(passes) == 3
    del stream
    gc.collect()
    assert (len(passes), threading.active_count()) == (3, threads)


def test_a_stream_leaves_other_calls_as_they_were(tiny):
    """Catches a stream whose remains reach a batch that is decoded after it, and inference mode left on."""
    prompts = [PROMPT, "wood", "a blue ring on sand"]
    before = tiny.generate(prompts, method="refined_jacobi").tokens
    next(tiny.stream(PROMPT, method="refined_jacobi"))
    assert not torch.is_inference_mode_enabled()
    assert torch.equal(tiny.generate(prompts, method="refined_jacobi").tokens, before)


def test_two_streams_of_one_model_at_a_time_are_an_error_and_not_a_wrong_image(tiny):
    first, second = tiny.stream(PROMPT, method="jacobi"), tiny.stream("wood", method="jacobi")
    next(first)
    next(second)
    with pytest.raises(LanternError, match="stream one image"):
        next(first)
    assert list(second)[-1].is_complete


def test_what_cannot_be_streamed_is_an_error_in_one_sentence(tiny):
    with pytest.raises(LanternError, match="no rounds of a tree to stream"):
        next(tiny.stream(PROMPT, method="rows"))
