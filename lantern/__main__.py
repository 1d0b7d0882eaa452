"""python -m lantern: a local page that shows two methods decoding the same prompt."""

import os
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import closing

from lantern.errors import LanternError

CHOSEN_IN_THE_PAGE = ("method", "drafter", "tree", "acceptance", "verification")
USAGE = """usage: python -m lantern [port=8123] [model=llamagen] [open=true] [SETTING=VALUE ...]

Serves a page at http://127.0.0.1:8123/, for this machine alone: type a prompt, pick two
methods, and watch both images being decoded. Ctrl-C ends it.

  port=8123        0 takes any free port
  model=llamagen   a name in conf/model
  open=true        open the page in the browser; false only prints its address
  SETTING=VALUE    a setting of the model or of a part, such as device=cpu, sampling.top_k=100 or
                   drafter.checkpoint=my_drafter; methods, drafters and rules the page offers"""


def main(arguments: Sequence[str]) -> None:
    """Serves until Ctrl-C."""
    if {"-h", "--help"} & set(arguments):
        return print(USAGE)
    from lantern.cli.error_messages import prepare_process, starting_line  # Hydra, which --help does without

    prepare_process()
    if wrong := [argument for argument in arguments if "=" not in argument]:
        raise LanternError(f"{wrong[0]!r} is not of the form setting=value; see python -m lantern --help")
    given = dict(argument.split("=", 1) for argument in arguments)
    port, model, opens = given.pop("port", "8123"), given.pop("model", "llamagen"), given.pop("open", "true")
    if chosen := [f"{name}={value}" for name, value in given.items() if name.lstrip("+") in CHOSEN_IN_THE_PAGE]:
        raise LanternError(f"{', '.join(chosen)} is chosen in the page; leave it out")
    if not port.isdecimal() or opens not in ("true", "false"):
        raise LanternError(f"port={port}, open={opens}: give a number and true or false")
    with closing(starting_line()):
        from lantern.live.server import LiveServer  # and torch
    with LiveServer(int(port)) as server:
        print(f"loading {model} …", flush=True)
        server.load(model, [f"{name}={value}" for name, value in given.items()])
        print(f"{server.url}  (Ctrl-C ends it)", flush=True)
        has_display = sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        if opens == "true" and has_display:  # else the browser would be one in this terminal
            webbrowser.open(server.url)
        server.serve_forever()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LanternError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print()
