"""Before any test module imports transformers; see lantern's docstring."""

import lantern  # noqa: F401
