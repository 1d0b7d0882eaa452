"""EAGLE's chain of latents on a tiny transformer: its drafts are those of whole passes, its images plain decoding's."""

import pytest
import torch
from support.tiny_latents import PROMPTS, LatentSplits, tiny_latent_eagle, tiny_latent_target
from support.tiny_tasks import fit
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.continuous.gaussian_ratio import GaussianRatio
from lantern.continuous.gaussian_shared import GaussianShared, Tolerance
from lantern.continuous.latent_eagle import load_latent_eagle
from lantern.continuous.latent_sampling import LatentSampling
from lantern.decoding import DecodingSetup, generate
from lantern.drafters.none import NoDrafter
from lantern.errors import CheckpointError, LanternError
from lantern.training.drafter.drafter_task import DrafterTask
from lantern.training.drafter.latent_drafter_task import LatentDrafterTask
from lantern.training.drafter.teacher_forcing import target_features

SEEDS = [3, 4, 5, 6, 7]


def decode(drafter, verification, rule=None, batch_size: int = 2):
    target, sampling = drafter.target, LatentSampling(cfg_scale=drafter.target.cfg_scale)
    return generate(DecodingSetup(target, drafter, verification, rule or Exact(), sampling), PROMPTS, SEEDS, batch_size)


def plain(target):
    parts = NoDrafter(), GaussianShared(target), Exact(), LatentSampling(cfg_scale=target.cfg_scale)
    return generate(DecodingSetup(target, *parts), PROMPTS, SEEDS, 1)


@pytest.mark.parametrize("cfg_scale", [pytest.param(1.0, marks=pytest.mark.full), 2.0])
def test_rejected_drafts_leave_no_trace(cfg_scale):
    """Catches caches that keep a rejected draft, and guidance rows that are mixed."""
    drafter = tiny_latent_eagle(tiny_latent_target(cfg_scale))
    found = decode(drafter, GaussianShared(drafter.target), Tolerance(1e-7))
    torch.testing.assert_close(found.tokens, plain(drafter.target).tokens, rtol=0, atol=1e-4)


def test_an_image_does_not_depend_on_its_batch():
    drafter = tiny_latent_eagle(tiny_latent_target())
    runs = [decode(drafter, GaussianRatio(drafter.target), batch_size=size) for size in (1, 5)]
    torch.testing.assert_close(runs[1].tokens, runs[0].tokens, rtol=0, atol=1e-6)
    assert not torch.allclose(runs[0].tokens, plain(drafter.target).tokens)


class Watched(GaussianRatio):
    """Keeps the trees of the first image, by the position of their roots."""

    def __call__(self, tree, probs, rule, noise):
        if int(noise.position[0]) >= 0:
            self.seen.append((int(noise.position[0]), tree))
        return super().__call__(tree, probs, rule, noise)


def slow_conditions(drafter, prompt: str, committed: Tensor, drafts: Tensor) -> Tensor:
    """The conditions that each draft was drawn from [k, R D], by whole passes of the layer over the image so far."""
    target, network = drafter.target, drafter.network
    features = target_features(target, committed[None], [prompt])[0]  # [R, P + n - 1, D]
    text = target.empty_tokens(target.prefix_len - 1)
    embeddings = target.embed(torch.cat([text, committed])).expand(target.guidance, -1, -1)
    found = []
    for draft in drafts:
        outputs = network(embeddings, features, target.rotation[None, 1 : features.shape[1] + 1], None)[:, -1:]
        found.append(target.guide(outputs[None])[0, 0])
        features = torch.cat([features, outputs], 1)
        embeddings = torch.cat([embeddings, target.embed(draft).expand(target.guidance, 1, -1)], 1)
    return torch.stack(found)


def test_drafts_are_drawn_from_the_conditions_of_whole_passes():
    """Catches a slot, a position or a feature that is off by one, at any depth."""
    drafter = tiny_latent_eagle(tiny_latent_target())
    verification = Watched(drafter.target)
    verification.seen = []
    tokens = decode(drafter, verification, batch_size=1).tokens[0]
    rounds = [(position, tree) for position, tree in verification.seen][:5]
    for position, tree in rounds:
        count = min(drafter.depth, 15 - position)
        expected = slow_conditions(drafter, PROMPTS[0], tokens[: position + 1], tree.tokens[0, 1 : 1 + count])
        torch.testing.assert_close(tree.draft_probs[0, :count], expected, rtol=0, atol=1e-6)


@pytest.mark.full
def test_training_lowers_the_feature_loss_and_its_drafter_decodes(tmp_path):
    """Catches features that are regressed on their own position, and a folder that does not load."""
    target = tiny_latent_target()
    task = LatentDrafterTask(target, 1e-2, 1e-2, 0.0, depth=2, validation_depth=3, seed=0)
    task.network.double()
    batch = torch.utils.data.default_collate(list(LatentSplits().split("train")))

    def losses() -> list[float]:
        with torch.no_grad():
            pairs = task._pairs(batch)
            return [float(loss) for loss in task._losses(pairs, task._passes(pairs, 2))]

    fit(task, tmp_path, max_steps=1, data=LatentSplits())
    before = losses()
    fit(task, tmp_path, max_steps=40, data=LatentSplits())
    assert all(after < 0.9 * start for after, start in zip(losses(), before, strict=True))
    task.export(tmp_path / "drafter")
    drafter = load_latent_eagle(tmp_path / "drafter", 2, target, LatentSampling())
    assert decode(drafter, GaussianRatio(target)).tokens.shape == (5, 16, 4)


def test_what_cannot_be_trained_or_loaded_is_refused_by_name(tmp_path):
    """Catches a validation of no position, after the latents were computed."""
    target = tiny_latent_target()
    with pytest.raises(CheckpointError, match="task=drafter_continuous"):
        load_latent_eagle(tmp_path / "none", 2, target, LatentSampling())
    for depth, validation_depth in ((16, 4), (2, 17)):
        with pytest.raises(LanternError, match=rf"task\.depth={depth}, task\.validation_depth={validation_depth}"):
            LatentDrafterTask(target, 1e-2, 1e-2, 0.0, depth, validation_depth, seed=0)
    with pytest.raises(LanternError, match="task=drafter_continuous"):
        DrafterTask(target, LatentSampling(), None, 0, 0, 0, 1, 0)
