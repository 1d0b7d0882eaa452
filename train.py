"""Trains one part of Lantern (task=, see conf/task), exports it and says how to evaluate it."""

import sys

from lantern.errors import end_in_one_line

if __name__ == "__main__":
    sys.excepthook = end_in_one_line  # before the libraries, in which Ctrl-C may come
    from lantern.training.run.entry import train

    train()
