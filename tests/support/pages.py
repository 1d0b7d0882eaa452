"""Written pages."""

import json
from pathlib import Path


def read_content(path: str | Path) -> dict[str, object]:
    """The JSON of a written page."""
    page = Path(path).read_text(encoding="utf-8")
    return json.loads(page.split('<script type="application/json" id="content">', 1)[1].split("</script>", 1)[0])


def visible(page, selector: str) -> bool:
    return page.ask(f"document.querySelector({selector!r})?.checkVisibility() ?? false")
