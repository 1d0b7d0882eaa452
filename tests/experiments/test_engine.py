"""What the benchmark makes of decodings whose times are known."""

import pytest
import torch

from lantern.experiments.engine import throughput_row
from lantern.types import Generation, Round


def generation(latency: float) -> Generation:
    """Two images of 4 tokens in 3 rounds: 2 ms of drafting, 5 of the target, 1 of accepting, 0.5 of commits each."""
    rounds = [Round([[0], [0]], 3, 2.0, 5.0, 1.0, (0, 1), None, 0.5) for _ in range(3)]
    return Generation(torch.zeros(2, 4, dtype=torch.long), rounds, torch.tensor([3, 2]), latency, 6, 4.5e-3)


def test_the_parts_of_a_round_are_per_round():
    """Catches parts divided by images, and a part without the commits."""
    row = throughput_row([generation(0.03), generation(0.042)], 4)
    assert row["images_per_s"] == pytest.approx(4 / 0.072)
    assert row["round_ms"] == pytest.approx(12)
    parts = {key: row[key] for key in ("draft_ms", "verify_ms", "accept_ms")}
    assert parts == pytest.approx({"draft_ms": 2, "verify_ms": 5, "accept_ms": 1.5})
    assert (row["drafter_forward_ms"], row["overhead"]) == pytest.approx((1.5, (0.5 + 1 + 0.5) / 8.5))
    assert row["tokens_per_step"] == pytest.approx(3 * 4 / 10)
