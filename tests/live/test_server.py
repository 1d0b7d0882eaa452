"""The page's server over real HTTP."""

import json
import re
import socket
from http.client import HTTPConnection, HTTPResponse
from itertools import pairwise
from time import monotonic, sleep
from types import SimpleNamespace

import pytest
from support.latents import LinearTarget
from support.paths import ROOT

from lantern.errors import LanternError
from lantern.live.comparison import METHODS, Comparison, Request, parts_of
from lantern.live.server import LiveServer

PROMPT = "a red sphere on wood"
GOOD = {"prompt": PROMPT, "methods": ["plain", "jacobi"]}


def test_a_model_of_continuous_tokens_is_refused():
    model = SimpleNamespace(target=LinearTarget())
    with LiveServer(0) as server, pytest.raises(LanternError, match="model=linear has continuous tokens"):
        server.use(model, "linear")


def ask(server, method: str, path: str, body: object = None, **headers: str) -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    text = body if isinstance(body, str | None) else json.dumps(body)
    kind = {"Content-Type": "application/json"} if body is not None else {}
    connection.request(method, path, text, kind | {name.replace("_", "-"): value for name, value in headers.items()})
    return connection.getresponse()


def events(response: HTTPResponse) -> list[dict]:
    return [json.loads(line) for line in response.read().splitlines()]


def test_a_comparison_streams_both_images_and_says_whether_they_are_the_same(server, tiny):
    response = ask(server, "POST", "/compare", GOOD)
    assert response.status == 200
    found = events(response)
    for side in (0, 1):
        own = [event for event in found if event.get("side") == side]
        assert [own[0]["event"], own[-1]["event"]] == ["start", "complete"]
        rounds = own[1:-1]
        assert all(before["committed"] < after["committed"] for before, after in pairwise(rounds))
        assert rounds[-1]["committed"] == 256
        assert rounds[-1]["pixels"]["width"] == 128
        assert rounds[-1]["seconds"] > 0
    assert [event["event"] for event in found].index("complete") < next(
        number for number, event in enumerate(found) if event.get("side") == 1
    )
    assert found[-1] == {"event": "verdict", "total": 256, "different": []}


def test_a_prompt_that_is_cut_is_told_with_each_comparison(tiny):
    """Catches an image of half a prompt without a word, from the second one on."""
    comparison, long = Comparison(tiny, "tiny"), " ".join([PROMPT] * 9)
    told = [next(comparison.run(Request(prompt, ("jacobi",))))["told"] for prompt in (long, PROMPT, long)]
    assert [long in words for words in told] == [True, False, True]
    assert not told[1]


@pytest.mark.parametrize(
    ("model", "given", "dtypes"),
    [("llamagen", [], ["dtype=float32"]), ("llamagen", ["dtype=bfloat16"], ["dtype=bfloat16"]), ("janus_pro", [], [])],
)
def test_an_embedded_model_is_shown_in_float32(model, given, dtypes, tiny, monkeypatch):
    """Catches a demonstration that calls a lossless method's image another one, for bfloat16 has rounded."""
    loaded = []
    monkeypatch.setattr("lantern.live.server.api.load", lambda name, settings: loaded.append(settings) or tiny)
    with LiveServer(0) as server:
        server.load(model, given)
    assert loaded == [dtypes]


@pytest.mark.full
def test_the_verdict_names_the_positions_that_differ(tiny):
    methods = ("plain", "lantern_pp")
    *_, verdict = Comparison(tiny, "tiny").run(Request(PROMPT, methods))
    left, right = (tiny.generate([PROMPT], **parts_of(name)).tokens[0] for name in methods)
    assert verdict["different"] == (left != right).nonzero().flatten().tolist() != []


@pytest.mark.full
@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_is_offered_decodes(tiny, name):
    """Catches two independent draws of one law whose difference is put down to rounding, too."""
    assert next(Comparison(tiny, "tiny").run(Request(PROMPT, (name,))))["coupled"] == (name != "lantern_pp")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({**GOOD, "prompt": "a tiger on <b>wood"}, "unknown word 'tiger'"),
        ({**GOOD, "models": 3}, "models"),
        ("[", "Expecting value"),
    ],
)
def test_a_bad_request_is_answered_with_one_sentence(server, body, message):
    (answer,) = events(ask(server, "POST", "/compare", body))
    assert message in answer["message"]
    assert ask(server, "GET", "/setup").status == 200


def test_requests_from_other_sites_are_rejected(server):
    """Catches DNS rebinding, and a form on another site that starts a decoding."""
    assert server.server_address[0] == "127.0.0.1"
    for name in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1.evil.example", "", "[::2]:80"):
        assert ask(server, "GET", "/", Host=name).status == 403
        assert ask(server, "POST", "/compare", GOOD, Host=name).status == 403
    assert ask(server, "POST", "/compare", GOOD, Origin="http://evil.example").status == 403
    assert ask(server, "POST", "/compare", GOOD, Content_Type="text/plain").status == 400
    for name in ("localhost", "127.0.0.1:80", "[::1]:80", "LOCALHOST:1"):
        assert ask(server, "GET", "/", Host=name).status == 200


def test_the_files_have_a_strict_policy_and_nothing_else_is_served(server):
    for path, kind in (("/", "html"), ("/page.js", "javascript"), ("/grid.js", "javascript"), ("/style.css", "css")):
        response = ask(server, "GET", path)
        assert response.status == 200
        assert kind in response.getheader("Content-Type")
        assert "default-src 'none'" in response.getheader("Content-Security-Policy")
        assert b"//cdn" not in response.read()
    for path in ("/server.py", "/../server.py", "/favicon.ico", "/compare"):
        assert ask(server, "GET", path).status == 404
    assert ask(server, "POST", "/", {}).status == 404


@pytest.mark.full
def test_a_second_comparison_is_refused_and_a_closed_connection_ends_the_first(server, monkeypatch, slow_rounds):
    """Catches two decodings on one cache, and one that goes on with nobody looking."""
    monkeypatch.setattr("lantern.live.server.PATIENCE_S", 0.2)
    first = ask(server, "POST", "/compare", {**GOOD, "methods": ["plain", "plain"]})
    assert json.loads(first.readline())["event"] == "start"
    second = ask(server, "POST", "/compare", GOOD)
    assert second.status == 409
    assert "another comparison is running" in events(second)[0]["message"]
    first.close()
    monkeypatch.setattr("lantern.live.server.PATIENCE_S", 3)  # twice 256 rounds of plain decoding would take longer
    third = ask(server, "POST", "/compare", {**GOOD, "methods": ["static_shared", "jacobi"]})
    assert events(third)[-1]["event"] == "verdict"
    assert not server.busy.locked()


@pytest.mark.full
def test_a_browser_that_reads_nothing_does_not_keep_the_others_out_for_long(server):
    """Catches 32 s of "another comparison is running" for a tab that the system has stopped."""
    body = json.dumps({**GOOD, "methods": ["plain", "plain"]}).encode()
    head = f"POST /compare HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        stuck.connect(("127.0.0.1", server.server_port))
        stuck.sendall(head.encode() + b"\r\n\r\n" + body)
        while not server.busy.locked():
            sleep(0.01)
        began = monotonic()
        while server.busy.locked():
            assert monotonic() - began < 25
            sleep(0.1)


def test_a_failure_inside_is_an_event_and_the_next_comparison_runs(server, monkeypatch):
    monkeypatch.setattr("lantern.live.comparison.Preview.__call__", lambda *_: 1 / 0)
    last = events(ask(server, "POST", "/compare", GOOD))[-1]
    assert last == {"event": "error", "message": "ZeroDivisionError in the server; its terminal has the traceback"}
    monkeypatch.undo()
    assert events(ask(server, "POST", "/compare", GOOD))[-1]["event"] == "verdict"


@pytest.mark.parametrize("port", ["taken", 70_000])
def test_a_port_that_cannot_be_had_is_one_sentence_with_a_remedy(port):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1] if port == "taken" else port
        with pytest.raises(LanternError, match=f"port {number} cannot be used .*; choose another with port="):
            LiveServer(number)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast ratio of two colours, #rrggbb or #rgb."""
    lights = []
    for colour in (one, other):
        digits = colour.lstrip("#") if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("page", ["live/style.css", "reporting/page/style.css"])
def test_borders_of_what_one_can_press_are_seen(page):
    """Catches a border that people who see little cannot find: WCAG 2.2 asks for a contrast of 3, in both themes."""
    style = (ROOT / "lantern" / page).read_text()
    assert re.search(r"\bbutton\b[^}]*border: 1px solid var\(--edge\)", style)
    themes = [
        dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    ]
    assert len(themes) >= 2
    for theme in themes[:2]:
        assert min(contrast(theme["edge"], theme[behind]) for behind in ("ground", "raised")) >= 3, theme
