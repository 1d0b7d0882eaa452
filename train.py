"""Trains one part of Lantern (task=, see conf/task), exports it and says how to evaluate it."""

from lantern.training.run.entry import train

if __name__ == "__main__":
    train()
