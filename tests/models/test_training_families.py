"""Training on families of different prompts, rows and bodies: from samples of its own to a drafter that decodes."""

from types import SimpleNamespace

import pytest
import torch
from hydra.utils import instantiate
from support.families import FAMILIES, PROMPTS, config
from support.tiny_tasks import drafter_task, fit
from support.toy import decode

from lantern.drafters.loading import load_eagle
from lantern.drafters.none import NoDrafter
from lantern.models.hf.target import HuggingFaceTarget
from lantern.sampling import Sampling
from lantern.training.drafter.teacher_forcing import target_features
from lantern.training.tables.features import FeatureSplit, FeatureTable
from lantern.training.tables.tokens import TargetSamples
from lantern.trees.static import chain


class Captions:
    def split(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(captions=PROMPTS, fingerprint="captions")


@pytest.mark.full
@pytest.mark.parametrize("family", [FAMILIES[name] for name in ("lumina_mgpt", "emu3", "glm_image")], ids=str)
def test_a_family_trains_a_drafter_that_decodes_plain_decodings_tokens(loaded, tmp_path):
    """Catches samples, features or a drafter of another shape, and features with attention to later positions."""
    sampling = Sampling()
    target = loaded.target.configured(sampling.cfg_scale)
    samples = TargetSamples(target, Captions(), sampling, str(tmp_path), 0, 4)
    task = drafter_task(target, sampling=sampling, validation_depth=2)
    fit(task, tmp_path, 4, data=samples, batch_size=2)
    task.export(tmp_path / "drafter")
    drafter = load_eagle(tmp_path / "drafter", target, chain(2), sampling)
    parts = drafter, NoDrafter()
    drafted, plain = (decode(target, part, sampling, 2, prompts=PROMPTS, seeds=[1, 2, 3]) for part in parts)
    assert torch.equal(drafted.tokens, plain.tokens)
    items = samples.split("train")
    tokens, captions = torch.stack([items[i]["tokens"] for i in range(2)]), items.captions[:2]
    whole, part = target_features(target, tokens, captions), target_features(target, tokens[:, :9], captions)
    torch.testing.assert_close(whole[:, :, : part.shape[2]], part, rtol=0, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("family", [FAMILIES["emu3"]], ids=str)
def test_tables_of_another_prompt_format_are_not_read(loaded, tmp_path):
    """Catches samples of another law, and features of another prefix, where the model has other settings."""

    def stored(**given: object) -> tuple[HuggingFaceTarget, TargetSamples, FeatureSplit]:
        cfg = config(loaded.family, loaded.folder)
        cfg.model.update(given)
        target = instantiate(cfg.model)
        samples = TargetSamples(target, Captions(), Sampling(cfg_scale=target.cfg_scale), str(tmp_path), 0, 4)
        return target, samples, FeatureTable(samples, target, str(tmp_path), budget_gib=1).split("train")

    _, samples, features = stored()
    target, own_samples, own = stored(negative="wood")
    assert own_samples.split("train").fingerprint != samples.split("train").fingerprint
    assert own.fingerprint != features.fingerprint
    for item in (own[i] for i in range(len(PROMPTS))):
        expected = target_features(target, item["tokens"][None], [item["caption"]])[0]
        torch.testing.assert_close(item["features"], expected, rtol=0, atol=1e-4)
