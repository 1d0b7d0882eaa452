from types import SimpleNamespace

import pytest
import torch
from support.recipes import feature_lk
from support.tiny_tasks import MemorySplits, drafter_task, fit, target_task

from lantern.errors import LanternError
from lantern.models.checkpoints import load_weights, save_weights
from lantern.models.conditioners import SCENE_WORDS
from lantern.models.llamagen.weights_folder import load_target, load_tokenizer, tokens_hash
from lantern.sampling import Sampling
from lantern.training.data_module import TrainingData
from lantern.training.drafter import teacher_forcing
from lantern.training.drafter.drafter_task import DrafterTask
from lantern.training.target_tasks import words_of_data


@pytest.mark.parametrize(("made", "precision"), [("target", "32-true"), ("drafter", "32-true"), ("target", "64-true")])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_by_bit(made, precision, weights, target, tmp_path):
    """Batches, caption dropout, feature noise, learning rate, momenta: a difference in any of them changes the weights.
    Step 4 is in the second epoch of three batches. Catches float64 weights that are restored into a float32 model."""
    whole, resumed = (target_task(weights) if made == "target" else drafter_task(target) for _ in range(2))
    fit(whole, tmp_path, max_steps=8, save_every=4, precision=precision)
    with torch.no_grad():
        [weight.zero_() for weight in resumed.parameters() if weight.requires_grad]
    fit(resumed, tmp_path, max_steps=8, ckpt_path=str(tmp_path / "step-step=4.ckpt"), precision=precision)
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


def test_the_loss_is_the_mean_over_passes_of_its_weighted_parts(target):
    """Catches a loss without the temperature, a weight or a pass; alpha would still rise."""
    task = DrafterTask(
        target, Sampling(temperature=0.7), feature_lk(feature_weight=0.5, overlap_weight=2.0, feature_noise=0.0),
        lr=1e-2, muon_lr=1e-2, weight_decay=0.0, validation_depth=2, seed=0,
    )  # fmt: skip
    task.start_from, task.log = "trained", lambda *_, **__: None  # no linear start
    task._trainer = SimpleNamespace(global_step=0, global_rank=0, world_size=1)
    batch = torch.utils.data.default_collate(list(MemorySplits().split("train"))[:2])
    pairs, terms = task._pairs(batch), []
    p = (target.head(task._guide_image(pairs.features)) / 0.7).softmax(-1)
    for skipped, outputs in enumerate(task._passes(pairs, 2)):
        rows = slice(target.prefix_len - 1 + skipped, None)
        q = (target.head(task._guide_image(outputs)) / 0.7).softmax(-1)
        regression = torch.nn.functional.smooth_l1_loss(outputs[:, rows], pairs.features[:, rows])
        sites = slice(skipped, p.shape[1] - 1 + skipped)  # one chain of two behind each root
        cross_entropy = -(p * q.log()).sum(-1)[:, sites].mean()
        alpha = torch.minimum(p, q).sum(-1)[:, sites]
        terms.append(0.5 * regression + 0.1 * cross_entropy - 2.0 * alpha.log().mean())
    assert task.training_step(batch, 0).item() == pytest.approx((sum(terms) / 2).item(), rel=1e-5)


def test_a_target_in_half_precision_teaches_a_drafter_in_single(weights, tmp_path):
    """Catches products of mixed dtypes, where the drafter's differs from the target's."""
    half = load_target(weights / "target", weights / "tokenizer", 2.0, "bfloat16", "cpu")
    task = drafter_task(half)
    task.network.float()
    fit(task, tmp_path, max_steps=1)
    assert all(weight.dtype == torch.float32 for weight in task.network.parameters())


def test_target_learns_and_its_export_loads(weights, tmp_path):
    task = target_task(weights)
    first = fit(task, tmp_path, max_steps=1).callback_metrics["train/loss"]
    last = fit(task, tmp_path, max_steps=60).callback_metrics["train/loss"]
    assert last < first - 0.3
    task.export(tmp_path / "target")
    loaded = load_target(tmp_path / "target", weights / "tokenizer", dtype="float32", device="cpu")
    weight = task.transformer.output.weight
    assert torch.allclose(loaded.transformer.output.weight, weight, atol=1e-3)
    assert load_weights(tmp_path / "target")[1]["tokens_hash"] == tokens_hash(load_tokenizer(weights / "tokenizer"))


def test_a_target_is_trained_further_on_its_own_tokens_and_image_size_only(weights, tmp_path):
    task = target_task(weights)
    task.export(tmp_path / "target")
    further = target_task(weights, seed=1, start_from=str(tmp_path / "target"))
    weight = task.transformer.output.weight
    assert torch.allclose(further.transformer.output.weight, weight, atol=1e-3)
    with pytest.raises(LanternError, match=r"images of 9 tokens do not fill task\.architecture\.grid=\[4, 4\]"):
        further.validation_step({"tokens": torch.zeros(1, 9, dtype=torch.long), "caption": ["wood"]}, 0)
    save_weights(tmp_path / "other", load_weights(tmp_path / "target")[0], task.config | {"tokens_hash": "0"})
    with pytest.raises(LanternError, match=r"task\.start_from=.*other was trained with other tokens"):
        target_task(weights, start_from=str(tmp_path / "other"))


def test_a_target_reads_the_words_of_its_data(weights, tmp_path):
    """Catches words in another order than those of a target that is trained further, whose vectors would be swapped;
    and a target that learns `ring,` and refuses `ring`."""
    data = MemorySplits(4)  # words of scenes
    assert words_of_data(data) == list(SCENE_WORDS)
    data.captions = ["(noto) bee,", "a Bee on - wood."] * 2
    words = words_of_data(data)
    assert words == ["a", "bee", "noto", "on", "wood"]
    first = target_task(weights, vocabulary=words)
    first.export(tmp_path / "target")
    further = {"start_from": str(tmp_path / "target")}
    assert target_task(weights, vocabulary=["wood", "noto"], **further).config["vocabulary"] == words
    with pytest.raises(LanternError, match="other words"):
        target_task(weights, vocabulary=["wood", "zebra"], **further)


@pytest.mark.parametrize("cfg_scale", [2.0, 1.0])
def test_any_targets_features_are_those_of_the_targets_own_pass(target, cfg_scale):
    """A target of another family is run through its decoding passes: catches rows that see what follows them, a lost
    last row, and features that autograd rejects."""
    target = target.configured(cfg_scale)
    items = MemorySplits().split("train")[:3]
    tokens, captions = torch.stack([i["tokens"] for i in items]), [i["caption"] for i in items]
    own = teacher_forcing.target_features(target, tokens, captions)
    passes = teacher_forcing.features_of_decoding(target, tokens, captions)
    visible = target.conditioner(captions)[1]
    torch.testing.assert_close(passes[:, :, target.prefix_len :], own[:, :, target.prefix_len :], rtol=0, atol=1e-5)
    pads = ~visible[:, None].expand(-1, target.guidance, -1)
    prefix = passes[:, :, : target.prefix_len]
    torch.testing.assert_close(prefix[~pads], own[:, :, : target.prefix_len][~pads], rtol=0, atol=1e-5)


def test_gradients_behind_the_head_are_those_of_autograd(target):
    """The packed product of LlamaGen's head and the default of any target. Catches a weight that is not transposed."""
    rows = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    gradient = torch.randn(2, 3, target.vocab_size, generator=torch.Generator().manual_seed(1))
    (expected,) = torch.autograd.grad(target.head(rows), rows, gradient)
    for backward in (teacher_forcing.head_backward(target), teacher_forcing.head_by_autograd(target)):
        torch.testing.assert_close(backward(gradient), expected)


def test_validation_overlap_is_that_of_the_sampling_law(target):
    """alpha_1 by brute force over the codes of one image, from the drafter's and the target's guided laws."""
    task = drafter_task(target)
    batch = torch.utils.data.default_collate(MemorySplits().split("train")[:1])
    logged = {}
    task.log = lambda name, value, **_: logged.update({name: float(value)})
    with torch.no_grad():
        task.validation_step(batch, 0)
        pairs = task._pairs(batch)
        first = next(iter(task._passes(pairs, 1)))
        p, q = (task.sampling.law(target.head(task._guide_image(x)))[0] for x in (pairs.features, first))
    brute = sum(min(p[t, x].item(), q[t, x].item()) for t in range(15) for x in range(32)) / 15
    assert logged["val/alpha_1"] == pytest.approx(brute, abs=1e-5)
    assert task._overlaps(MemorySplits().split("train")[:1]).item() == pytest.approx(brute, abs=1e-5)


@pytest.mark.parametrize(("seen", "advice"), [(0.6, "more images"), (0.5, "more layers")])
def test_a_training_ends_with_what_limits_its_drafter(seen, advice, target, monkeypatch):
    task, data = drafter_task(target), TrainingData(MemorySplits(), 4, seed=0)
    assert [len(items) for items in data.seen_and_unseen(5)] == [5, 5]
    found = iter([seen + torch.tensor([0.0, 0.01]), 0.5 + torch.tensor([0.0, 0.01])])
    monkeypatch.setattr(task, "_overlaps", lambda items: next(found))
    told = task.compare_origins(data, 0.4)
    assert f"{seen + 0.005:.3f}±0.010 on training images, 0.505±0.010 on held-out ones, " in told  # 1.96 errors
    assert "both drawn by the target; val/alpha_1=0.400 is that on images drawn by the target; " in told
    assert advice in told
    data.unseen, found = SimpleNamespace(few=lambda *_: []), iter([torch.ones(2), torch.ones(2)])
    assert "held-out ones, both of the data set; val/alpha_1 is that on images drawn by" in task.compare_origins(data)


@pytest.mark.parametrize(("validated", "advice"), [(0.44, "task=drafter_self"), (0.45, "more images")])
def test_a_drafter_of_images_that_its_target_draws_not_wants_its_own(validated, advice, target, monkeypatch):
    """Catches "train it longer" where a drafter is twice as good on the data's images as on those it is used for."""
    task, data = drafter_task(target), TrainingData(MemorySplits(), 4, seed=0, unseen=MemorySplits())
    monkeypatch.setattr(data, "seen_and_unseen", lambda count: (0.6, 0.5))
    monkeypatch.setattr(task, "_overlaps", lambda mean: mean + torch.tensor([0.0, 0.01]))  # 0.505±0.010 of the latter
    assert advice in task.compare_origins(data, validated)
