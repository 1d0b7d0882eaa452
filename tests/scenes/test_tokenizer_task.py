"""Training of a miniature tokenizer from start to export."""

from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch

from lantern.errors import CheckpointError, LanternError
from lantern.models.llamagen.weights_folder import load_tokenizer, tokens_hash
from lantern.scenes.critic import as_images
from lantern.scenes.tasks import DecoderTask, TokenizerTask
from lantern.training.data_module import ResumableLoader, SeededBatches
from lantern.training.run.budget import WarmupCosine

STEPS = 6
ARCHITECTURE = dict(
    channels=12, encoder_multipliers=[1, 1], decoder_multipliers=[1, 1], codebook_size=16, code_dim=8, z_channels=12,
    num_res_blocks=1, groups=1,
)  # fmt: skip


class Noise:
    """Eight images of noise with captions."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict:
        generator = torch.Generator().manual_seed(index)
        return {"image": torch.randint(256, (64, 64, 3), generator=generator, dtype=torch.uint8), "caption": "wood"}


SETTINGS = dict(
    architecture=ARCHITECTURE, lr=1e-3, discriminator_lr=1e-3, discriminator_width=4, pixel_weight=10.0,
    texture_weight=0.1, adversarial_weight=0.3, commitment_weight=0.25, quantize_from=1, texture_from=2,
    discriminate_from=3, average_decay=0.9, seed=0,
)  # fmt: skip


def miniature() -> TokenizerTask:
    torch.manual_seed(0)
    return TokenizerTask(**SETTINGS)


def fit(task: TokenizerTask, folder: Path, until: int, ckpt_path: Path | None = None) -> tuple:
    """The task and its trainer."""
    loader = ResumableLoader(Noise(), SeededBatches(8, 2, seed=0))
    trainer = pl.Trainer(
        max_steps=STEPS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, gradient_clip_val=1.0,
        callbacks=[WarmupCosine(2), StopAt(until)], default_root_dir=folder,
    )  # fmt: skip
    validation = torch.utils.data.DataLoader(Noise(), batch_size=4)
    trainer.fit(task, loader, validation, ckpt_path=ckpt_path, weights_only=True)
    return task, trainer


class StopAt(pl.Callback):
    """Interrupts a run before the end of its schedule."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        trainer.should_stop = trainer.should_stop or trainer.global_step >= self.step
        if trainer.global_step == STEPS // 2 == self.step:
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "half.ckpt")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[TokenizerTask, pl.Trainer]:
    return fit(miniature(), tmp_path_factory.mktemp("whole"), STEPS)


@pytest.mark.full
def test_every_loss_joins_and_what_is_exported_is_the_average(trained, tmp_path):
    assert {"train/texture", "train/discriminator", "val/psnr", "val/codes_used"} <= set(trained[1].callback_metrics)
    trained[0].export(tmp_path)
    loaded = load_tokenizer(tmp_path)
    for name, value in trained[0].average.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    assert not torch.equal(trained[0].average.decoder.conv_in.weight, trained[0].tokenizer.decoder.conv_in.weight)


@pytest.mark.parametrize(("quantize_from", "until"), [(STEPS, STEPS), pytest.param(2, 2, marks=pytest.mark.full)])
def test_a_training_that_learns_no_codebook_is_refused(quantize_from, until, tmp_path):
    """Also where something else than its number of steps has ended it. Catches random codes."""
    task = TokenizerTask(**SETTINGS | {"quantize_from": quantize_from})
    with pytest.raises(LanternError, match=rf"a training of {until} steps .* task\.quantize_from={quantize_from};"):
        fit(task, tmp_path, until)


@pytest.mark.full
def test_a_resumed_run_ends_with_the_same_weights(trained, tmp_path):
    """Catches codebook statistics, averages or a batch position missing from checkpoints."""
    fit(miniature(), tmp_path, STEPS // 2)
    resumed, _ = fit(miniature(), tmp_path, STEPS, ckpt_path=tmp_path / "half.ckpt")
    for name, value in trained[0].state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


@pytest.mark.full
def test_a_decoder_is_trained_for_the_tokens_as_they_are(trained, tmp_path):
    """Catches a trained encoder or codebook, and a run that starts from other weights than those given."""
    trained[0].export(tmp_path / "before")
    before = load_tokenizer(tmp_path / "before")
    task = DecoderTask(**SETTINGS, start_from=str(tmp_path / "before"))
    for name, value in before.state_dict().items():
        assert torch.equal(task.average.state_dict()[name], value), name
    fit(task, tmp_path, STEPS)[0].export(tmp_path / "after")
    after = load_tokenizer(tmp_path / "after")
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert tokens_hash(after) == tokens_hash(before)
    assert torch.equal(after.encode(images), before.encode(images))
    assert not torch.equal(after.decode(after.encode(images)), before.decode(before.encode(images)))


def test_a_decoder_learns_from_the_latents_of_use_under_autocast(tmp_path):
    """Catches latents in half precision, whose nearest codes are not the tokens that it will decode."""
    miniature().export(tmp_path / "before")
    task, seen = DecoderTask(**SETTINGS, start_from=str(tmp_path / "before")), []
    quantized = task._quantized
    task._quantized, task._log = lambda z: seen.append(z) or quantized(z), lambda name, value: value
    batch = {"image": torch.stack([Noise()[index]["image"] for index in range(2)])}
    real = as_images(batch["image"]).contiguous(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16):
        task.training_step(batch, 0)
        rounded = task.tokenizer.latents(real)
    assert torch.equal(seen[0], task.tokenizer.latents(real))
    assert not torch.equal(seen[0], rounded)


def test_a_decoder_of_another_architecture_is_named(tmp_path):
    miniature().export(tmp_path / "before")
    other = SETTINGS | {"architecture": ARCHITECTURE | {"z_channels": 8}}
    with pytest.raises(CheckpointError, match=r"mis-shaped .*task\.start_from"):
        DecoderTask(**other, start_from=str(tmp_path / "before"))
    alike = SETTINGS | {"architecture": ARCHITECTURE | {"groups": 2}}  # of the same shapes
    with pytest.raises(LanternError, match=r"before has other layers than task\.architecture"):
        DecoderTask(**alike, start_from=str(tmp_path / "before"))


def test_tokenizer_and_discriminator_losses_do_not_share_gradients(tmp_path):
    """Catches gradients of the tokenizer's loss at the discriminator, and the reverse."""
    task = miniature()
    task._log = lambda name, value: value
    real = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    made = (real * 0.9).requires_grad_()
    pixels = (made - real).abs().mean()
    task.adversarial_weight = 0.0  # what is left is the discriminator's own loss
    task._adversarial(pixels, made, real).backward(retain_graph=True)
    assert not made.grad.any()
    learned = [weight.grad.clone() for weight in task.discriminator.parameters()]
    task.adversarial_weight = 5.0
    task.discriminator.zero_grad()
    task._adversarial(pixels, made, real).backward()
    assert made.grad.any()
    again = [weight.grad for weight in task.discriminator.parameters()]
    assert all(map(torch.equal, again, learned))
