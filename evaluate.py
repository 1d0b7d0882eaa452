"""Measures the speed and the quality of a decoding method: one setting, or a sweep with +sweep=delta."""

import sys

from lantern.errors import end_in_one_line

if __name__ == "__main__":
    sys.excepthook = end_in_one_line  # before the libraries, in which Ctrl-C may come
    from lantern.cli.main import evaluate

    evaluate()
