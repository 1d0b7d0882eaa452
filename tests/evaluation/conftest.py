"""Evaluations of few images that are made in several groups."""

import pytest


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    """Images are made batch by batch."""
    monkeypatch.setattr("lantern.evaluation.sides.BATCHES", 1)
