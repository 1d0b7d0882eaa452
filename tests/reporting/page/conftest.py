"""A made-up sweep, and one browser for all tests that need one."""

from pathlib import Path

import pytest
from support.browser import browser, find_browser
from support.made_sweep import made_sweep


@pytest.fixture(scope="session")
def sweep(tmp_path_factory) -> Path:
    return made_sweep(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    if not find_browser():
        pytest.skip("no Chromium or Chrome on the path; apt-get install chromium to run this test")
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def page(chromium, sweep):
    """The sweep's page, freshly opened at desktop width; the test fails for anything the page complains about."""
    chromium.problems.clear()
    chromium.open(sweep / "report.html")
    yield chromium
    assert chromium.problems == []
