"""A miniature of the embedded model behind the page's server."""

import threading

import pytest
from support.tiny_weights import load_tiny

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
