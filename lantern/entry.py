"""Which of the errors an entry point meets is the user's."""

from lantern.errors import LanternError


def user_error(error: BaseException) -> LanternError | None:
    """The LanternError behind an exception, however often it was wrapped (Hydra wraps what constructors raise)."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, LanternError):
        seen = seen.__cause__ or seen.__context__
    return seen
