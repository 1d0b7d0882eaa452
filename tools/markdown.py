"""Tables in Markdown, and the blocks of pages that commands write."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from lantern.errors import LanternError
from lantern.runtime.files import replace_text


def table_lines(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table's lines, the titles first."""
    return [f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *rows)]


def write_block(page: Path, name: str, text: str) -> None:
    """Replaces what stands between a table's markers in a page. LanternError where they are missing."""
    before, _, after = split_page(page.read_text(), name)
    replace_text(page, before + text + after)


def split_page(text: str, name: str) -> tuple[str, str, str]:
    """A page before, within and behind a table's markers; LanternError where they are missing."""
    begin, end = f"<!-- table {name} -->\n", f"<!-- end of table {name} -->\n"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise LanternError(f"the page lacks the lines {begin.strip()} and {end.strip()}; add them where it is to stand")
    before, rest = text.split(begin)
    within, after = rest.split(end)
    return before + begin, within, end + after
