"""A warning that is told once."""

from logging import Logger


class FirstWarning:
    """Logs the first warning it is given: a training reads its captions in every epoch."""

    def __init__(self, log: Logger) -> None:
        self._log, self._is_told = log, False

    def __call__(self, text: str, *values: object) -> None:
        if not self._is_told:
            self._log.warning(text, *values)
        self._is_told = True
