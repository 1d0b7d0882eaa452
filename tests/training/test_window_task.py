"""Training on windows that decoding has left: what is recorded, what is learnt from it, and what is exported."""

import pytest
import torch
from support.tiny_tasks import MemorySplits, fit
from support.toy import PROMPTS, decode, tiny_target

from lantern.drafters.export import write_drafter
from lantern.drafters.jacobi.corrected import load_corrected_jacobi
from lantern.drafters.loading import load_eagle
from lantern.errors import CheckpointError, LanternError
from lantern.sampling import Sampling
from lantern.training.drafter.teacher_forcing import target_features
from lantern.training.drafter.window_task import Captions, WindowTask
from lantern.trees.static import chain

SIZES = {"hidden_dim": 16, "num_blocks": 2, "length": 6}
SETTINGS = dict(lengths=[5, 3], branches=2, steps_per_batch=4, kept_batches=2, windows=48, validated_length=4)
SETTINGS |= dict(lr=1e-2, muon_lr=1e-2, weight_decay=0.0, seed=0)
MANY = PROMPTS * 8, [*range(8 * len(PROMPTS))]


def window_task(target, **others: object) -> WindowTask:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return WindowTask(target, Sampling(), SIZES, **(SETTINGS | others))


class ToyCaptions(MemorySplits):
    def __init__(self) -> None:
        super().__init__()
        self.captions = PROMPTS[:4] * 3


def test_recorded_windows_are_of_the_images_that_they_name():
    """Catches roots, guesses or features of another image, round or place, and laws of another token."""
    task, captions = window_task(target := tiny_target(), branches=0), PROMPTS[:4]
    pool = task._record(captions, (4, 0))
    windows, tokens = pool.windows, pool.tokens
    assert len({*windows.image.tolist()}) == 4
    features = target_features(target, tokens, captions)
    for image, root, guesses, stale in zip(windows.image, windows.root, windows.guesses, windows.stale, strict=True):
        assert guesses[0] == tokens[image, root]  # of the image, as decoding is lossless
        leaf = target.guide(features[image, None, :, target.prefix_len - 1 + root, None])[0, 0]
        torch.testing.assert_close(stale[0, : len(leaf)], leaf)  # behind true tokens a feature is no guess
    at = torch.arange(tokens.shape[1]) + target.prefix_len - 1
    torch.testing.assert_close(pool.features, target.guide(features[:, :, at]))


def test_a_training_commits_more_tokens_and_changes_none(tmp_path):
    """Catches a loss that teaches something else, and an export that is not what was trained."""
    target = tiny_target()
    task = window_task(target)
    _, before = task._decode(*MANY, 4, 0)
    fit(task.double(), tmp_path, 150, data=Captions(ToyCaptions()), precision="64-true")
    task.export(tmp_path / "drafter")
    write_drafter(str(tmp_path / "drafter"), target, str(tmp_path / "copy"))
    drafter = load_corrected_jacobi(tmp_path / "copy", 4, target, Sampling())
    after = decode(target, drafter, Sampling(), 8, prompts=MANY[0], seeds=MANY[1])
    assert torch.equal(after.tokens, before.tokens)
    assert after.tokens_per_step > 1.05 * before.tokens_per_step
    again = window_task(target, start_from=str(tmp_path / "drafter"))
    assert all(map(torch.equal, again.network.parameters(), drafter.network.parameters()))
    with pytest.raises(LanternError, match=r"has num_blocks=2; give task\.network\.num_blocks=2"):
        WindowTask(target, Sampling(), SIZES | {"num_blocks": 3}, **SETTINGS, start_from=str(tmp_path / "drafter"))
    told = r"is a drafter of another kind, that of \+method=corrected_jacobi; .*python train\.py$"
    with pytest.raises(CheckpointError, match=told):
        load_eagle(tmp_path / "drafter", target, chain(3), Sampling())


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"lengths": [5, 7]}, r"task\.lengths\.1=7"), ({"lengths": []}, r"task\.lengths=\[\]"),
        ({"validated_length": 1}, r"task\.validated_length=1"), ({"branches": 16}, r"task\.branches=16"),
        ({"windows": 0}, r"task\.windows=0"),
    ],
)  # fmt: skip
def test_values_without_meaning_are_refused_before_a_training(wrong, named):
    with pytest.raises(LanternError, match=named):
        window_task(tiny_target(), **wrong)
