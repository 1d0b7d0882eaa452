"""Packed linear layers, with and without a gradient, and where a processor cannot pack."""

import pytest
import torch

from lantern.models.llamagen.fused import linear

WEIGHT = torch.randn(5, 8, generator=torch.Generator().manual_seed(5))
X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


def test_the_product_is_the_plain_one_with_and_without_a_gradient():
    expected = X @ WEIGHT.T
    torch.testing.assert_close(linear(WEIGHT)(X), expected)
    leaf = X.clone().requires_grad_()
    made = linear(WEIGHT)(leaf)
    torch.testing.assert_close(made, expected)
    made.sum().backward()
    torch.testing.assert_close(leaf.grad, WEIGHT.sum(0).expand_as(X))


def test_bfloat16_is_not_packed_where_the_processor_cannot(monkeypatch):
    """Catches the end of every model in bf16 on a processor without AVX-512, where torch's own products work."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", lambda *_: pytest.fail("packed"))
    weight = WEIGHT.bfloat16()
    assert linear(weight)(X.bfloat16()).dtype == torch.bfloat16
