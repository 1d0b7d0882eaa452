"""Writes a drafter into a folder of its own: python export.py drafter.checkpoint=… to=my_drafter"""

import sys

from lantern.errors import end_in_one_line

if __name__ == "__main__":
    sys.excepthook = end_in_one_line  # before the libraries, in which Ctrl-C may come
    from lantern.cli.main import export

    export()
