"""Before any test module imports transformers, see lantern's docstring; and one browser for all tests that need one."""

import lantern  # noqa: F401

# isort: split
import pytest
from support.browser import browser, find_browser


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    if not find_browser():
        pytest.skip("no Chromium or Chrome on the path; apt-get install chromium to run this test")
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started
