"""A miniature of the embedded model behind the page's server, and a browser."""

import threading

import pytest
from support.browser import browser, find_browser
from support.tiny_weights import write_tiny_weights

import lantern
from lantern.live.server import LiveServer


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    weights = write_tiny_weights(tmp_path_factory.mktemp("weights"))
    return lantern.load("llamagen", [f"paths.weights={weights}", "dtype=float64", "device=cpu"])


@pytest.fixture(scope="session")
def server(tiny):
    with LiveServer(0) as started:
        started.use(tiny, "llamagen")
        thread = threading.Thread(target=started.serve_forever, args=(0.01,))
        thread.start()
        yield started
        started.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    if not find_browser():
        pytest.skip("no Chromium or Chrome on the path; apt-get install chromium to run this test")
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started
