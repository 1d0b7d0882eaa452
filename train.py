"""Trains one part of Lantern (task=drafter, target, critic or tokenizer), exports it and says how to evaluate it."""

from lantern.training.entry import train

if __name__ == "__main__":
    train()
