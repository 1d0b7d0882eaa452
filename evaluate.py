"""Measures the speed and the quality of a decoding method: one setting, or a sweep with +sweep=delta."""

from lantern.errors import ctrl_c

if __name__ == "__main__":
    ctrl_c(ends_at_once=True)
    from lantern.cli.main import evaluate

    evaluate()
