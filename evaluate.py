"""Measures what a way of decoding gains in speed and costs in quality: one setting, or a sweep with +sweep=delta."""

from lantern.cli.main import evaluate

if __name__ == "__main__":
    evaluate()
