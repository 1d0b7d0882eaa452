"""A corrected window against correcting written out place by place. Verification hides a drafter's mistakes from the
output, so nothing else would notice them than a lower speed."""

import pytest
import torch
import torch.nn.functional as F
from support.toy import CODES, DIM, PROMPTS, decode, plain_tokens, tiny_target, tiny_window
from support.uneven_rounds import Likeliest, judge_at_random, target_features

from lantern.drafters.jacobi.corrected import BEFORE, CorrectedJacobi, FusedWindow, WindowNetwork
from lantern.drafters.jacobi.jacobi import Jacobi, redraw_coupled
from lantern.drafters.jacobi.starts import Nearest
from lantern.errors import LanternError
from lantern.sampling import Sampling

LENGTH, LAYERS = 5, (1, 0)


class Left:
    """What a pass has left behind for one image: by place behind the root the features [R, F], the token that it read
    there and the token that would have followed; and the features of the accepted leaf."""

    def __init__(self, leaf: torch.Tensor, features: torch.Tensor, tokens: list[int], picks: list[int]) -> None:
        self.leaf, self.features, self.tokens, self.picks = leaf, features, tokens, picks


def guided(target, features: torch.Tensor) -> torch.Tensor:
    """[R, F] -> [F'] the guided feature and the conditional row's inputs of layers."""
    return torch.cat([target.guide(features[None, :, None, :DIM])[0, 0], features[0, DIM:]])


def slow_corrected(drafter: CorrectedJacobi, committed: list[int], left: Left) -> list[int]:
    network, target, row = drafter.network, drafter.target, drafter.network.row
    seen, none = len(left.tokens), torch.zeros(DIM, dtype=target.embed_weight.dtype)
    size = target.embed_weight.square().mean().sqrt() if network.scaled else 1.0
    guesses = [committed[-1], *[left.picks[min(k, len(left.picks) - 1)] for k in range(LENGTH - 1)]]
    own, root = committed + guesses[1:], len(committed) - 1
    last = left.tokens[-1] if seen else None
    read = committed[:-1] + [left.tokens[k] if k < seen else last for k in range(LENGTH)]
    if last is None and root:
        read = committed[:-1] + [committed[-2]] * LENGTH  # the accepted leaf itself

    def embedded(tokens: list, place: int) -> torch.Tensor:
        known = 0 <= place < len(tokens) and tokens[place] is not None
        return target.embed(torch.tensor(tokens[place])) / size if known else none

    rows, bases, ages = [], [], []
    for k in range(-1, LENGTH):
        place = root + k
        features = left.leaf if k < 0 or not seen else left.features[:, min(k, seen - 1)]
        stale = guided(target, features)
        parts = [embedded(own, place)]
        parts += [embedded(own, place - back) - embedded(read, place - back) for back in range(1 + BEFORE)]
        parts += [embedded(own, place - row + right) for right in range(3)]
        parts += [F.rms_norm(part, (DIM,), eps=1e-5) for part in stale.split(DIM)]
        rows.append(torch.cat(parts))
        bases.append(stale[:DIM])
        ages.append(max(0, k - seen + 1) if k >= 0 else 0)
    added = network(torch.stack(rows)[None], torch.tensor([ages]))[0]
    for k, guess in enumerate(guesses):
        if k >= seen or guess != left.tokens[k]:
            bases[k + 1] = bases[k + 1] + added[k + 1]
    logits = target.head(torch.stack(bases[1:])[None])[0]
    return drafter.sampling.scores(logits).argmax(-1).tolist()


@pytest.mark.parametrize(("layers", "scaled"), [(LAYERS, False), ((), False), (LAYERS, True)])
@pytest.mark.parametrize("cfg_scale", [2.0, 1.0])
@torch.inference_mode()
def test_a_window_is_corrected_as_written_out_place_by_place(cfg_scale, layers, scaled):
    """Catches tokens of another place, image or round, features of another node, a window kept for a new image, and a
    correction where the token is as read."""
    target, generator = tiny_target(cfg_scale), torch.Generator().manual_seed(0)
    network = tiny_window(target, layers, scaled)
    drafter = CorrectedJacobi(network, target, Sampling(cfg_scale=cfg_scale), LENGTH)
    prompts = PROMPTS[:3]
    target.allocate(3, LENGTH + 1)
    drafter.allocate(3)

    def begin(rows: list[int]) -> list[Left]:
        drafter.begin(target.prefill([prompts[row] for row in rows], torch.tensor(rows)), torch.tensor(rows))
        ends = [target_features(target, prompts[row], [], layers)[:, -1] for row in rows]
        return [Left(end, torch.empty(0), [], [0]) for end in ends]

    left, corrected = begin([0, 1, 2]), 0
    committed = [[token] for token in torch.randint(CODES, (3,), generator=generator).tolist()]
    for turn in range(5):
        if turn == 2:  # a row's image is done and another prompt takes its place
            prompts, committed[1] = [prompts[0], PROMPTS[4], prompts[2]], [7]
            left[1] = begin([1])[0]
        if turn == 3:
            target.keep(torch.tensor([2, 1]))
            drafter.keep(torch.tensor([2, 1]))
            prompts, committed, left = [prompts[2], prompts[1]], [committed[2], committed[1]], [left[2], left[1]]
        roots, tokens_left = torch.tensor([tokens[-1] for tokens in committed]), torch.full((len(prompts),), 99)
        tree = drafter.draft(roots, tokens_left, Likeliest(None))
        for row, tokens in enumerate(committed):
            assert tree.tokens[row].tolist() == [tokens[-1], *slow_corrected(drafter, tokens, left[row])]
            corrected += bool(left[row].tokens)
        forward, verdict = judge_at_random(target, drafter, tree, generator, some_stand=True)
        for row, accepted in enumerate(verdict.accepted.tolist()):
            committed[row] += [*tree.tokens[row, 1 : accepted + 1].tolist(), int(verdict.next_token[row])]
            behind = slice(accepted + 1, None)
            found = forward.features[row, :, accepted], forward.features[row, :, behind]
            kept = verdict.picks[row, min(accepted + 1, LENGTH) :].tolist()
            left[row] = Left(*found, tree.tokens[row, behind].tolist(), kept)
    assert len({len(tokens) for tokens in committed}) > 1  # uneven
    assert corrected > 6


@torch.inference_mode()
def test_an_untrained_network_leaves_a_jacobi_window():
    """Catches a correction that is not zero at first, and a start other than the nearest place's law."""
    target, sampling = tiny_target(), Sampling()
    untrained = WindowNetwork(DIM, 16, 2, LAYERS, LENGTH, target.grid[1], groups=2).to(target.embed_weight)
    found = decode(target, CorrectedJacobi(untrained, target, sampling, LENGTH), sampling, 3)
    window = decode(target, Jacobi(target, LENGTH, Nearest(), redraw_coupled, sampling), sampling, 3)
    assert torch.equal(found.steps, window.steps)
    assert torch.equal(found.tokens, plain_tokens(sampling))


@torch.inference_mode()
def test_decoding_runs_the_network_that_was_trained():
    """Catches weights left out of the fused layers, windows shorter than the network's, and sums over later places."""
    network, generator = tiny_window(tiny_target()), torch.Generator().manual_seed(0)
    inputs = torch.randn(3, LENGTH + 1, network.fc.in_features, generator=generator, dtype=torch.float64)
    age = torch.randint(0, 4, (3, LENGTH + 1), generator=generator)
    expected = network(inputs, age)
    torch.testing.assert_close(FusedWindow(network, LENGTH)(inputs, age), expected)
    inputs[:, 3:] += 1
    assert torch.equal(network(inputs, age)[:, :3], expected[:, :3])
    assert not torch.isclose(network(inputs, age)[:, 3:], expected[:, 3:]).any()


@pytest.mark.parametrize("wrong", [{"length": 1}, {"length": 7}, {"branches": 99}])
def test_values_without_meaning_are_rejected_by_name(wrong):
    target = tiny_target()
    with pytest.raises(LanternError, match=f"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        CorrectedJacobi(tiny_window(target), target, Sampling(), **({"length": LENGTH} | wrong))
