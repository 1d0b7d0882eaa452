"""A refined window against refining written out position by position. Verification hides a drafter's mistakes from the
output, so nothing else would notice them than a lower speed."""

import pytest
import torch
from support.tiny_refined import LENGTH, SHARE, tiny_refined
from support.toy import CODES, DIM, PROMPTS, tiny_target
from support.uneven_rounds import Likeliest, judge_at_random, target_features

from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.jacobi.refined import RefinedJacobi
from lantern.errors import LanternError
from lantern.models.llamagen.transformer import feed_forward_dim
from lantern.sampling import Sampling


class Recording(Likeliest):
    def pick(self, laws: torch.Tensor) -> torch.Tensor:
        self.laws = laws
        return super().pick(laws)


class Left:
    """What a pass has left behind for one image: by place behind the root its features [R, F], the token it was read
    with and the token that would have followed."""

    def __init__(self, features: torch.Tensor, tokens: list[int], picks: list[int]) -> None:
        self.features, self.tokens, self.picks = features, tokens, picks


def slow_refined(drafter: RefinedJacobi, prompt: str, committed: list[int], left: Left, passes: int) -> list[int]:
    """Every pass is one causal run without a cache over the committed pairs and the window's rows. Row k reads the
    guess k tokens behind the root and the feature of row k - 1, the exact one at the root."""
    target, reads = drafter.target, drafter.network.reads
    given = target_features(target, prompt, committed[:-1], reads.layers)  # [R, P + T - 1, F]
    exact, seen = reads(given), len(left.tokens)
    last = [left.features[:, k] if seen else given[:, -1] for k in (min(k, max(seen - 1, 0)) for k in range(LENGTH))]
    stale, features = [row[:, :DIM] for row in last], [reads(row) for row in last]  # for the head, for the layer
    stale_read, picks = features, [left.picks[min(k, len(left.picks) - 1)] for k in range(LENGTH)]
    for _ in range(passes):
        guesses = [committed[-1], *picks[:-1]]
        tokens = [0] * (target.prefix_len - 1) + committed + guesses[1:]
        before = torch.cat([exact, *(feature[:, None] for feature in features[:-1])], dim=1)
        embeddings = target.embed(torch.tensor([tokens] * target.guidance))
        positions = torch.arange(1, len(tokens) + 1).clamp(max=len(target.rotation) - 1)
        outputs = drafter.network(embeddings, before, target.rotation[None, positions], None)[:, -LENGTH:]
        features, predicted = [], []
        for k, guess in enumerate(guesses):
            share = 1.0 if k >= seen else SHARE if k == 0 or guess != left.tokens[k] else 0.0
            features.append(stale_read[k] + share * (outputs[:, k] - stale_read[k]))
            predicted.append(stale[k] + share * (outputs[:, k] - stale[k]))
        logits = target.head(target.guide(torch.stack(predicted, 1)[None]))[0]
        picks = drafter.sampling.scores(logits).argmax(-1).tolist()
    return picks


@pytest.mark.parametrize(
    "reads", [((),), ((1, 0),), ((1, 0), True), ((), False, 3)], ids=["features", "layers", "both", "three layers deep"]
)
@pytest.mark.parametrize("passes", [1, 2, 3])
@pytest.mark.parametrize("cfg_scale", [2.0, 1.0])
@torch.inference_mode()
def test_a_window_is_refined_as_written_out_position_by_position(cfg_scale, passes, reads):
    """Catches rows that attend to the gaps of uneven rows or the last window, features of another token or image,
    shares mixed up, a stale window kept for a new image, and a head that reads what the layer is to read."""
    target, generator = tiny_target(cfg_scale), torch.Generator().manual_seed(0)
    drafter = tiny_refined(target, Sampling(cfg_scale=cfg_scale), passes, LENGTH, 0, *reads)
    prompts = PROMPTS[:3]
    target.allocate(3, LENGTH + 1)
    drafter.allocate(3)
    drafter.begin(target.prefill(prompts, torch.arange(3)), torch.arange(3))
    committed = [[token] for token in torch.randint(CODES, (3,), generator=generator).tolist()]
    left = [Left(torch.empty(0), [], [0])] * 3
    refined = 0
    for turn in range(5):
        if turn == 2:  # a row's image is done and another prompt takes its place
            drafter.begin(target.prefill(PROMPTS[4:5], torch.tensor([1])), torch.tensor([1]))
            prompts, committed[1] = [prompts[0], PROMPTS[4], prompts[2]], [7]
            left[1] = Left(torch.empty(0), [], [0])
        if turn == 3:
            target.keep(torch.tensor([2, 1]))
            drafter.keep(torch.tensor([2, 1]))
            prompts, committed, left = [prompts[2], prompts[1]], [committed[2], committed[1]], [left[2], left[1]]
        forwards, tokens_left = drafter.forwards, torch.full((len(prompts),), 99)
        tree = drafter.draft(torch.tensor([tokens[-1] for tokens in committed]), tokens_left, Likeliest(None))
        assert drafter.forwards == forwards + passes
        for row, tokens in enumerate(committed):
            slow = slow_refined(drafter, prompts[row], tokens, left[row], passes)
            assert tree.tokens[row].tolist() == [tokens[-1], *slow]
            refined += bool(left[row].tokens)
        forward, verdict = judge_at_random(target, drafter, tree, generator, some_stand=turn == 0)
        for row, accepted in enumerate(verdict.accepted.tolist()):
            committed[row] += [*tree.tokens[row, 1 : accepted + 1].tolist(), int(verdict.next_token[row])]
            behind = slice(accepted + 1, None)
            picks = verdict.picks[row, min(accepted + 1, LENGTH) :].tolist()
            left[row] = Left(forward.features[row, :, behind], tree.tokens[row, behind].tolist(), picks)
    assert len({len(tokens) for tokens in committed}) > 1  # uneven
    assert refined > 6


@torch.inference_mode()
def test_a_window_is_refined_under_the_law_of_the_sampling():
    """Catches picks from a law without temperature or top_k, of which the likeliest code is the same."""
    laws = []
    for sampling in (Sampling(), Sampling(temperature=0.7, top_k=9)):
        target, proposals = tiny_target(), Recording(None)
        drafter = tiny_refined(target, sampling, passes=1)
        target.allocate(1, LENGTH + 1)
        drafter.allocate(1)
        drafter.begin(target.prefill(PROMPTS[:1], torch.arange(1)), torch.arange(1))
        drafter.draft(torch.tensor([3]), torch.tensor([99]), proposals)
        laws.append(proposals.laws)
    torch.testing.assert_close(laws[1], Sampling(temperature=0.7, top_k=9).law(laws[0].log()))


@pytest.mark.parametrize("wrong", [{"length": 1}, {"passes": 0}, {"share": 1.5}])
def test_values_without_meaning_are_rejected_by_name(wrong):
    target = tiny_target()
    network = EagleNetwork(DIM, 2, feed_forward_dim(DIM, 16))
    settings = {"length": 3, "passes": 1, "share": 0.5} | wrong
    with pytest.raises(LanternError, match=f"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        RefinedJacobi(network, target, Sampling(), **settings)
