"""A made-up sweep and its page."""

from pathlib import Path

import pytest
from support.made_sweep import made_sweep


@pytest.fixture(scope="session")
def sweep(tmp_path_factory) -> Path:
    return made_sweep(tmp_path_factory.mktemp("sweep"))


@pytest.fixture
def page(chromium, sweep):
    """The sweep's page, freshly opened at desktop width; the test fails for anything the page complains about."""
    chromium.problems.clear()
    chromium.open(sweep / "report.html")
    yield chromium
    assert chromium.problems == []
