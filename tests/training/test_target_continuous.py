"""Training of continuous targets: what moves and what stays, exact resuming, and folders that load or say why not."""

from pathlib import Path

import pytest
import torch
from support.tiny_tasks import MemorySplit, fit
from torch import Tensor

from lantern.continuous.target import ContinuousLlamaGenTarget, load_continuous_target
from lantern.errors import CheckpointError, LanternError
from lantern.models.checkpoints import load_weights, save_weights
from lantern.models.llamagen.weights_folder import load_tokenizer, load_transformer
from lantern.training.target_tasks import ContinuousTargetTask

CHANNELS = 4
HEAD = {"width": 16, "num_blocks": 1, "num_training_steps": 20, "num_steps": 4}


class LatentSplits:
    """The same random unit vectors in every split."""

    def split(self, name: str) -> MemorySplit:
        latents = torch.randn(12, 16, CHANNELS, generator=torch.Generator().manual_seed(1))
        latents = torch.nn.functional.normalize(latents, dim=-1)
        return MemorySplit({"tokens": each, "caption": "a red ring on wood" if i % 2 else "wood"}
                           for i, each in enumerate(latents))  # fmt: skip


def made_task(weights: Path, trained_layers: int = 1, lr: float = 1e-2) -> ContinuousTargetTask:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ContinuousTargetTask(
            str(weights / "target"), trained_layers, HEAD, str(weights / "tokenizer"), draws=2, lr=lr, muon_lr=lr,
            weight_decay=0.01, caption_dropout=0.3, seed=0,
        )  # fmt: skip


def fitted(task: ContinuousTargetTask, folder: Path, max_steps: int, **options) -> ContinuousTargetTask:
    fit(task, folder, max_steps, data=LatentSplits(), **options)
    return task


def loaded(folder: Path, weights: Path, dtype: str = "float32") -> ContinuousLlamaGenTarget:
    return load_continuous_target(folder, weights / "target", weights / "tokenizer", dtype=dtype, device="cpu")


@pytest.fixture(scope="module")
def exported(weights, tmp_path_factory) -> Path:
    """The folder of a target trained for a few steps, whose head depends on its condition."""
    folder = tmp_path_factory.mktemp("continuous")
    fitted(made_task(weights), folder, max_steps=6).export(folder / "target_continuous")
    return folder / "target_continuous"


def test_more_trained_layers_than_there_are_is_one_sentence(weights):
    """Catches a negative place from which on fewer would be trained."""
    with pytest.raises(LanternError, match=r"task\.trained_layers=3 is out of range; give 0 to 2"):
        made_task(weights, trained_layers=3)


def test_an_interrupted_and_resumed_run_equals_an_uninterrupted_one_bit_by_bit(weights, tmp_path):
    """Catches timesteps or noise that are not a function of the step."""
    whole, resumed = made_task(weights), made_task(weights)
    fitted(whole, tmp_path, max_steps=8, save_every=4)
    with torch.no_grad():
        [weight.zero_() for weight in resumed.parameters() if weight.requires_grad]
    fitted(resumed, tmp_path, max_steps=8, ckpt_path=str(tmp_path / "step-step=4.ckpt"))
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


def test_upper_layers_norm_and_head_are_trained_and_all_else_stays_the_bases(weights, tmp_path):
    """Catches a weight that is trained and then not exported, or exported and never trained."""
    base, task = load_transformer(weights / "target")[0].state_dict(), made_task(weights)
    before = {name: value.clone() for name, value in task.transformer.state_dict().items()}
    fitted(task, tmp_path, max_steps=3).export(tmp_path / "exported")
    own, _ = load_weights(tmp_path / "exported")
    for name, value in task.transformer.state_dict().items():
        moved = not torch.equal(value, before[name])
        assert moved == name.startswith(("layers.1.", "norm.", "output.")), name
        assert (name in own) == moved, name
        assert name in own or torch.equal(value, base[name]), name


def test_latents_are_embedded_as_a_mean_of_the_codes_near_them(exported, weights):
    """Against distances and weights written out. Catches latents that are not brought back to the sphere."""
    target, codes = loaded(exported, weights, "float64"), load_tokenizer(weights / "tokenizer").codebook.double()
    constants, table = target.tokenizer.standardisation, target.embed_weight
    drawn = torch.randn(5, CHANNELS, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    latents = torch.nn.functional.normalize(drawn, dim=-1)
    weight = (-(latents[:, None] - codes).square().sum(-1) / (2 * 0.1**2)).exp()
    expected = weight @ table / weight.sum(1, keepdim=True)
    for radius in (1, 1.2):  # the constants are in float32
        torch.testing.assert_close(target.embed(constants(radius * latents)), expected, atol=1e-5, rtol=1e-3)


def test_images_come_back_from_their_tokens_as_from_unquantised_latents(exported, weights):
    """Catches constants that are exchanged."""
    target = loaded(exported, weights)
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    tokens, plain = target.tokenizer.encode(images), load_tokenizer(weights / "tokenizer")
    expected = ((plain.render(plain.latents(images)) + 1) / 2).clamp(0, 1)
    torch.testing.assert_close(target.decode(tokens), expected, atol=1e-5, rtol=0)


def changed(folder: Path, to: Path, state: dict[str, Tensor] | None = None, **config: object) -> Path:
    """A copy of a weights folder with other entries; None: without that key."""
    before, settings = load_weights(folder)
    settings = {key: value for key, value in (settings | config).items() if value is not None}
    save_weights(to, before | (state or {}), settings)
    return to


def test_folders_that_do_not_fit_are_one_sentence(exported, weights, tmp_path):
    """Weights that are not finite, another tokenizer or base, and a config without a part."""
    spoilt = {"norm.weight": torch.full_like(load_weights(exported)[0]["norm.weight"], float("nan"))}
    cases = {
        "was trained on tokens 1234": changed(exported, tmp_path / "t", tokens_hash="1234"),
        "was trained on base 1234": changed(exported, tmp_path / "b", base_hash="1234"),
        "NaN or infinite values in norm.weight": changed(exported, tmp_path / "n", spoilt),
        "does not describe a transformer_of": changed(exported, tmp_path / "h", head=None),
    }
    for message, folder in cases.items():
        with pytest.raises(CheckpointError, match=message):
            loaded(folder, weights)
