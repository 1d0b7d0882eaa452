"""The embedded model in miniature, which no test writes to."""

from pathlib import Path

import pytest
from support.tiny_weights import write_tiny_weights


@pytest.fixture(scope="session")
def weights(tmp_path_factory) -> Path:
    """Of images of 8 x 8 tokens."""
    return write_tiny_weights(tmp_path_factory.mktemp("weights"), side=8)
