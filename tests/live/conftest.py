"""A miniature of the embedded model behind the page's server."""

import threading
import time

import pytest
from support.tiny_weights import load_tiny

from lantern.live import comparison
from lantern.live.server import LiveServer


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return load_tiny(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="session")
def server(tiny):
    with LiveServer(0) as started:
        started.use(tiny, "llamagen")
        thread = threading.Thread(target=started.serve_forever, args=(0.01,))
        thread.start()
        yield started
        started.shutdown()
        thread.join()


@pytest.fixture
def slow_rounds(monkeypatch):
    """Rounds of 10 ms or more, so that a comparison lasts."""
    event_of = comparison._round
    monkeypatch.setattr(comparison, "_round", lambda *parts: time.sleep(0.01) or event_of(*parts))
