"""Measures the speed and the quality of a decoding method: one setting, or a sweep with +sweep=delta."""

from lantern.cli.main import evaluate

if __name__ == "__main__":
    evaluate()
