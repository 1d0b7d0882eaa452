"""A headless Chromium driven through its DevTools pipe: pages, real mouse and keyboard events, console."""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
         "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
         "--remote-debugging-pipe")  # fmt: skip
PATIENCE_S = 60
LAUNCH = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execvp(sys.argv[3], sys.argv[3:])"""


def find_browser() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


STILL = """async selector => {
  for (let place = "", still = 0; ;) {
    const element = document.querySelector(selector);
    element.scrollIntoView({ block: "center", behavior: "instant" });
    const box = element.getBoundingClientRect();
    const middle = [box.x + box.width / 2, box.y + box.height / 2];
    still = place === String(middle) ? still + 1 : 0;
    if (still === 3) return middle;
    place = String(middle);
    await new Promise(requestAnimationFrame);
  }
}"""


class Browser:
    """One page of one browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers, self._unread, self._number = commands, answers, b"", 0
        self._session: dict[str, str] = {}
        self.allowed = ("file:", "data:", "about:")  # what a page may ask for
        self.problems: list[str] = []  # uncaught errors, console errors, requests over the network
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: object) -> dict:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _next(self) -> dict:
        while b"\0" not in self._unread:
            assert select.select([self._answers], [], [], PATIENCE_S)[0], f"no word from the browser in {PATIENCE_S} s"
            part = os.read(self._answers, 1 << 20)
            assert part, "the browser is gone"
            self._unread += part
        text, self._unread = self._unread.split(b"\0", 1)
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, event: str | None, params: dict) -> None:
        if event == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        if event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        if event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(str(params["args"]))
        if event == "Network.requestWillBeSent" and not params["request"]["url"].startswith(self.allowed):
            self.problems.append(f"requested {params['request']['url']}")

    def open(self, page: Path | str, width=1200, height=900, dark: bool = False, phone: bool = False) -> None:
        """page: a file, or the address of a local server, which its page may then ask."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=theme)
        self.allowed = ("file:", "data:", "about:", *([page] if isinstance(page, str) else []))
        self.send("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def ask(self, expression: str) -> object:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def centre(self, selector: str) -> tuple[float, float]:
        """Scrolls an element into view and returns the middle of it on the screen, once that has stayed the same for
        some frames: what moves meanwhile would be missed."""
        return tuple(self.ask(f"({STILL})({json.dumps(selector)})"))

    def hover(self, selector: str) -> None:
        x, y = self.centre(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        x, y = self.centre(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        codes |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=codes[key], **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=codes[key])


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A fresh browser whose files go to a folder; ended with the block."""
    to_it, commands = os.pipe()
    answers, from_it = os.pipe()
    launch = [sys.executable, "-c", LAUNCH, str(to_it), str(from_it)]
    program = [*launch, find_browser(), *FLAGS, f"--user-data-dir={folder}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(program, pass_fds=(to_it, from_it), **quiet)
    os.close(to_it)
    os.close(from_it)
    try:
        yield Browser(commands, answers)
    finally:
        os.close(commands)  # the browser ends with its pipe
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answers)
