"""What training computes with frozen weights under autocast is what use computes without it, bit by bit."""

from functools import partial

import torch
import torch.nn.functional as F
from support.tiny_tasks import MemorySplits, drafter_task
from torch import Tensor

from lantern.models.llamagen.tokenizer import Quantizer
from lantern.training.drafter.losses import CrossEntropy
from lantern.training.drafter.teacher_forcing import site_losses


def autocast(enabled: bool = True) -> torch.autocast:
    """As Lightning's bf16-mixed."""
    return torch.autocast("cpu", torch.bfloat16, enabled=enabled)


def units(count: int, dim: int = 8) -> Tensor:
    drawn = torch.randn(count, dim, generator=torch.Generator().manual_seed(count))
    return torch.nn.functional.normalize(drawn, dim=-1)


@torch.no_grad()
def test_the_nearest_code_is_that_of_use():
    """Catches cosines in half precision, which cannot tell the nearest of thousands of codes from the next."""
    quantizer, latents = Quantizer(4096, 8), units(2000)
    quantizer.embedding.weight.copy_(units(4096))
    with autocast():
        found = quantizer.nearest(latents)
        rounded = (latents @ quantizer.codebook.T).argmax(-1)
    assert torch.equal(found, quantizer.nearest(latents))
    assert not torch.equal(found, rounded)


@torch.no_grad()
def test_features_that_are_computed_at_each_step_are_those_that_are_stored(target):
    """Catches lessons on features that neither decoding nor features=disk has."""
    task, batch = drafter_task(target), torch.utils.data.default_collate(list(MemorySplits().split("train"))[:2])
    with autocast():
        found = task._pairs(batch)
    torch.testing.assert_close(found, task._pairs(batch), rtol=0, atol=0)


def test_the_laws_of_lessons_and_validation_are_those_of_decoding(target):
    """The head is a plain product, as on a GPU and of targets from the Hub; the CPU's packed one has no autocast.
    Catches laws p and q in half precision, by which a drafter is taught and chosen."""
    target._head = partial(F.linear, weight=target.transformer.output.weight)
    task, batch = drafter_task(target), torch.utils.data.default_collate(MemorySplits().split("train")[:2])
    laws = task._laws(task._pairs(batch))
    drafted = torch.randn(2, *laws.features.shape, generator=torch.Generator().manual_seed(0))

    def found() -> list[Tensor]:
        rows = drafted[:, :, :14].clone().requires_grad_()
        losses, overlaps = site_losses(rows, laws, CrossEntropy())
        (gradient,) = torch.autograd.grad(losses.sum(), rows)
        return [losses, overlaps, gradient, *laws.compare(drafted[:, :, :15], slice(None), batch["noise_seed"])]

    expected = found()
    with autocast():
        assert not torch.equal(laws.p(slice(None), torch.arange(14)), expected[0])  # the head itself would round
        torch.testing.assert_close(found(), expected, rtol=0, atol=0)
