"""What a weights file of a stranger may hold."""


class Code:
    """Would run a command if it were unpickled."""

    def __reduce__(self):
        return eval, ("print('executed')",)
