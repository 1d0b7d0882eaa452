"""The errors that a user can act on. Entry points print them as one sentence, without a traceback."""


class LanternError(ValueError):
    """Something the user gave does not work; the message names the value and the remedy."""


class CheckpointError(LanternError):
    """A weights file is missing, unreadable, unsafe or made for another model."""
