"""The numbers of a row for readers: docs/glossary.md explains the same ones, in the same words."""

from support.paths import ROOT

from lantern.reporting.columns import KNOWN


def test_the_glossary_has_every_number():
    """Catches a number that was added, renamed or explained anew in the code alone."""
    _, _, table = (ROOT / "docs" / "glossary.md").read_text().partition("| key | title | meaning |\n|---|---|---|\n")
    assert table == "".join(f"| `{column.key}` | {column.title} | {column.meaning} |\n" for column in KNOWN)
