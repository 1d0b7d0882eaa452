"""python -m lantern and its arguments."""

import sys

import pytest

from lantern.__main__ import main
from lantern.errors import LanternError
from lantern.live.server import LiveServer
from lantern.runtime.progress_line import ProgressLine


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["port=http"], "port=http"),
        (["port=0", "model=nope"], "model=nope is no option; .*llamagen"),
        (["+method=jacobi"], r"\+method=jacobi is chosen in the page; leave it out"),
        (["drafter=none", "tree=chain"], "drafter=none, tree=chain is chosen in the page"),
    ],
)
def test_arguments_that_do_not_fit_are_one_sentence(arguments, message, monkeypatch):
    monkeypatch.setattr(LiveServer, "serve_forever", lambda self: None)  # a mistake that is overlooked would hang here
    with pytest.raises(LanternError, match=message) as found:
        main([*arguments, "open=false"])
    assert "\n" not in str(found.value)


def test_a_line_stands_there_before_the_libraries_are_loaded(monkeypatch):
    """Catches seconds of silence."""
    shown = []
    monkeypatch.setattr(ProgressLine, "show", lambda self, *given: shown.append("lantern.live.server" in sys.modules))
    monkeypatch.delitem(sys.modules, "lantern.live.server")
    with pytest.raises(LanternError, match="model=nope"):
        main(["port=0", "model=nope", "open=false"])
    assert shown[0] is False
