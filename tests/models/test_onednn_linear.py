"""Packed linear layers: the product of one weight or of several joined, and no copy besides."""

import pytest
import torch

from lantern.models.onednn_linear import _can_pack, linear

WEIGHTS = [torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows)) for rows in (5, 7)]
X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("parts", [WEIGHTS[:1], WEIGHTS])
def test_several_weights_are_multiplied_as_one_with_and_without_a_gradient(parts):
    expected = X @ torch.cat(parts).T
    torch.testing.assert_close(linear(*parts)(X), expected)
    leaf = X.clone().requires_grad_()
    made = linear(*parts)(leaf)
    torch.testing.assert_close(made, expected)
    made.sum().backward()
    torch.testing.assert_close(leaf.grad, torch.cat(parts).sum(0).expand_as(X))


def test_the_joined_weight_is_held_packed_alone():
    """Catches a third copy of every feed-forward layer, 2.5 GiB of LlamaGen-3B."""
    if not _can_pack(WEIGHTS[0]):
        pytest.skip("this torch packs no weights")
    held = [cell.cell_contents for cell in linear(*WEIGHTS).__closure__]
    plain = [part for part in held if isinstance(part, torch.Tensor) and not part.is_mkldnn]
    assert not plain


def test_bfloat16_is_not_packed_where_the_processor_cannot(monkeypatch):
    """Catches the end of every model in bf16 on a processor without AVX-512, where torch's own products work."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", lambda *_: pytest.fail("packed"))
    weight = WEIGHTS[0].bfloat16()
    assert linear(weight)(X.bfloat16()).dtype == torch.bfloat16
