"""Trains one part of Lantern (task=, see conf/task), exports it and says how to evaluate it."""

from lantern.errors import ctrl_c

if __name__ == "__main__":
    ctrl_c(ends_at_once=True)
    from lantern.training.run.entry import train

    train()
