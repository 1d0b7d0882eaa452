"""Windows made for a drafter that reads stale features: guesses of the right law, features as decoding leaves them."""

import torch
from support.tiny_tasks import drafter_task, feature_lk, fit

from lantern.drafters.loading import load_network
from lantern.sampling import Sampling
from lantern.training.drafter.variants import WindowStudent
from lantern.training.drafter.windows import Windows, WindowTask, coupled_guesses, roots_of, stale_features
from lantern.types import DraftTree


def test_coupled_guesses_have_the_drafters_law_and_agree_as_often_as_two_laws_allow():
    """Catches a residual of the wrong sign, and guesses that agree too seldom or too often."""
    generator = torch.Generator().manual_seed(0)
    p, q = torch.rand(2, 6, generator=generator, dtype=torch.float64).softmax(-1).unbind()
    count = 200_000
    tokens = torch.multinomial(p, count, replacement=True, generator=generator)
    uniform = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    guesses = coupled_guesses(p.expand(count, -1), q.expand(count, -1), tokens, uniform)
    found = torch.bincount(guesses, minlength=6) / count
    assert (found - q).abs().max() < 0.005
    assert abs((guesses == tokens).double().mean() - torch.minimum(p, q).sum()) < 0.005


def test_a_window_begins_at_a_wrong_guess_some_places_behind_the_last():
    is_wrong = torch.tensor([[1, 0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0, 0]]).bool()
    roots, known = roots_of(is_wrong, spacing=3)
    assert roots.tolist() == [[0, 1, 2, 2, 2, 5, 5], [0, 1, 2, 3, 4, 5, 6]]
    assert known.tolist() == [[False, False, True, True, True, True, True], [False] * 7]


@torch.inference_mode()
def test_stale_features_are_those_of_a_pass_behind_the_committed_tokens(target):
    """One window after the other, written out: commit the image up to the root, read the guesses as a chain. Catches a
    guess that attends to the image's own token, or to another window."""
    target = target.configured(2.0)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(target.vocab_size, (2, target.num_tokens), generator=generator)
    guesses = tokens[:, :-1].clone()
    wrong = torch.rand(guesses.shape, generator=generator) < 0.5
    guesses[wrong] = (guesses[wrong] + 1) % target.vocab_size
    windows = Windows(guesses, ~wrong, *roots_of(wrong, spacing=3))
    captions = ["wood", "a ring"]
    found = stale_features(target, tokens, windows, captions, ())
    assert windows.known.any()
    for image in range(2):
        for root in {int(r) for r, k in zip(windows.roots[image], windows.known[image], strict=True) if k}:
            places = [t for t in range(guesses.shape[1]) if windows.known[image, t] and windows.roots[image, t] == root]
            chain = torch.cat([tokens[image, :root], guesses[image, places]])[None]
            target.allocate(1, chain.shape[1])
            target.prefill(captions[image : image + 1], torch.tensor([0]))
            parents = torch.arange(-1, chain.shape[1] - 1)[None]
            slow = target.verify(DraftTree(chain, parents)).features[0, :, root:]
            assert torch.allclose(found[image][:, places], slow, atol=1e-4)


def test_a_drafter_for_windows_trains_and_is_loaded_with_its_reader(target, tmp_path):
    """Catches weights of the reader that are not exported, not trained, or not loaded."""
    target = target.configured(2.0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        rates = {"lr": 1e-2, "muon_lr": 1e-2, "weight_decay": 0.0}
        task = WindowTask(
            target, Sampling(), feature_lk(), **rates, student=WindowStudent(2, 2), seed=0, validation_depth=3
        )
    fit(task, tmp_path, max_steps=4)
    task.export(tmp_path / "drafter")
    network = load_network(tmp_path / "drafter", target)
    assert torch.equal(network.stale.fc.weight, task.network.stale.fc.weight)
    assert network.stale.fc.weight.abs().max() > 0
    assert not torch.equal(network.stale.share, torch.full_like(network.stale.share, 0.5))
    further = drafter_task(target, student=WindowStudent(2, 2, num_layers=3), start_from=str(tmp_path / "drafter"))
    assert torch.equal(further.network.stale.fc.weight, network.stale.fc.weight)
    fit(further, tmp_path / "further", max_steps=4)
    further.export(tmp_path / "deeper")
    deeper = load_network(tmp_path / "deeper", target)
    assert deeper.num_layers == 3
    assert all(layer.feed_forward.w2.weight.abs().max() > 0 for layer in deeper.deeper)
    again = drafter_task(target, student=WindowStudent(2, 2), start_from=str(tmp_path / "deeper"))
    assert again.network.num_layers == 3  # as many as it has
