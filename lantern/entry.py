"""How entry points end: an error the user can act on is one sentence and exit status 1, without a traceback."""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lantern.errors import LanternError

P = ParamSpec("P")
T = TypeVar("T")


def user_error(error: BaseException) -> LanternError | None:
    """The LanternError behind an exception, however often it was wrapped (Hydra wraps what constructors raise)."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, LanternError):
        seen = seen.__cause__ or seen.__context__
    return seen


def reports_errors(run: Callable[P, T]) -> Callable[P, T]:
    """Decorates an entry point. Errors that are not the user's keep their traceback."""

    @functools.wraps(run)
    def reporting(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return run(*args, **kwargs)
        except Exception as error:
            if (known := user_error(error)) is None:
                raise
            print(f"error: {known}", file=sys.stderr)
            sys.exit(1)

    return reporting
