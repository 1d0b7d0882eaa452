"""python -m lantern and its arguments."""

import pytest

from lantern.__main__ import main
from lantern.errors import LanternError
from lantern.live.server import LiveServer


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
