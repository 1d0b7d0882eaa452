import pytest

from lantern.training.schedule import warmup_cosine


def test_rate_climbs_then_falls_to_zero():
    assert [warmup_cosine(step, 0.0, warmup_steps=4) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert warmup_cosine(100, 0.5, warmup_steps=4) == pytest.approx(0.5)
    assert warmup_cosine(100, 1.0, warmup_steps=4) == pytest.approx(0)


def test_rate_stays_zero_past_the_budget():
    """A cosine without a bound would rise again if the last batch exceeded the budget."""
    assert warmup_cosine(100, 1.3, warmup_steps=4) == pytest.approx(0)


def test_no_warmup_means_full_rate_at_once():
    assert warmup_cosine(0, 0.0, warmup_steps=0) == 1
