"""The page's HTTP server, for this machine alone: four files, /setup, and /compare, which streams JSON lines. All torch
work runs in one thread: it loads the model, and decodes the next round once the last one's line is sent."""

import json
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from lantern import api
from lantern.cli.settings import group_of
from lantern.errors import LanternError
from lantern.live.comparison import Comparison, Event, Request
from lantern.models.token_grid import has_latents

log = logging.getLogger(__name__)

FILES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/grid.js": ("grid.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
}
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}  # fmt: skip
EMBEDDED = ("llamagen", "emoji")  # models whose weights come with Lantern
PATIENCE_S = 3.0  # for a comparison whose browser has just left


class LiveServer(ThreadingHTTPServer):
    """Bound to 127.0.0.1 from construction on; requests wait until load() and serve_forever()."""

    daemon_threads = True
    is_closing = False

    def __init__(self, port: int) -> None:
        self.executor, self.busy = ThreadPoolExecutor(1), Lock()
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or "a port is a number from 0 to 65535"
            raise LanternError(f"port {port} cannot be used ({reason}); choose another with port=") from error

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def load(self, model: str, overrides: list[str]) -> None:
        """Loads a model, an embedded one in float32, in which a lossless method commits the tokens of plain decoding:
        bfloat16 rounds passes of other widths otherwise."""
        is_chosen = "dtype" in map(group_of, overrides) or model not in EMBEDDED
        overrides = [*([] if is_chosen else ["dtype=float32"]), *overrides]
        self.use(self.executor.submit(api.load, model, overrides).result(), model)

    def use(self, model: api.Model, name: str) -> None:
        if has_latents(model.target):
            raise LanternError(f"model={name} has continuous tokens, the page compares methods for codes; use another")
        self.comparison = Comparison(model, name)

    def server_close(self) -> None:
        """Ends the decoding under way and the thread that runs it."""
        self.is_closing = True
        super().server_close()
        self.executor.shutdown(cancel_futures=True)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that leaves at any moment is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = 5  # seconds that a browser may neither read nor send: meanwhile all others wait

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if self._is_foreign():
            return
        if path == "/setup":
            self._head(HTTPStatus.OK, "application/json")
            self._write(self.server.comparison.setup)
        elif path in FILES:
            name, kind = FILES[path]
            self._head(HTTPStatus.OK, f"{kind}; charset=utf-8")
            self.wfile.write((Path(__file__).parent / name).read_bytes())
        else:
            self._fail(HTTPStatus.NOT_FOUND, f"nothing is at {path[:80]}; the page is at {self.server.url}")

    def do_POST(self) -> None:
        """/compare: a Request as JSON; answers JSON lines until both images are complete or the browser leaves."""
        if self._is_foreign():
            return
        if self.path != "/compare":
            return self._fail(HTTPStatus.NOT_FOUND, f"nothing takes a POST at {self.path[:80]}; use /compare")
        if self.headers.get_content_type() != "application/json":  # which another site's form cannot send
            return self._fail(HTTPStatus.BAD_REQUEST, "a request is application/json")
        try:
            request = Request(**json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0)))))
        except (ValueError, TypeError) as error:  # of no page of ours
            return self._fail(HTTPStatus.BAD_REQUEST, str(error))
        if not self.server.busy.acquire(timeout=PATIENCE_S):
            return self._fail(HTTPStatus.CONFLICT, "another comparison is running; press Compare when it has ended")
        try:
            self._send_events(self.server.comparison.run(request))
        finally:
            self.server.busy.release()

    def _send_events(self, events: Iterator[Event]) -> None:
        """A line per event; a failure is a last event."""
        self._head(HTTPStatus.OK, "application/x-ndjson")
        try:
            with closing(_in_thread(self.server.executor, events)) as lines:
                for event in lines:
                    self._write(event)
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # the browser has left; _in_thread has ended the decoding
        except Exception as error:
            if self.server.is_closing:
                return
            message = str(error)
            if not isinstance(error, LanternError):
                log.exception("a comparison failed")
                message = f"{type(error).__name__} in the server; its terminal has the traceback"
            self._write({"event": "error", "message": message})

    def _is_foreign(self) -> bool:
        """Answers what another site's page may send: its Host is not local (DNS rebinding), or Origin not this page."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() in LOCAL_NAMES and origin in (None, f"http://{host}"):
            return False
        self._fail(HTTPStatus.FORBIDDEN, f"this page is for this machine alone; open {self.server.url}")
        return True

    def _fail(self, status: HTTPStatus, message: str) -> None:
        self._head(status, "application/json")
        self._write({"event": "error", "message": message})

    def _write(self, event: object) -> None:
        self.wfile.write(json.dumps(event).encode() + b"\n")

    def _head(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The terminal stays quiet."""


def _in_thread(executor: Executor, events: Iterator[Event]) -> Iterator[Event]:
    """The events, each made in the executor's thread when it is asked for; closed there with this iterator."""
    try:
        while (event := executor.submit(next, events, None).result()) is not None:
            yield event
    finally:
        executor.submit(events.close).result()
