"""README and docs: every command composes, every link, picture and file exists."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from support.configs import composed
from support.paths import CONF, ROOT

from lantern.evaluation.rows import Row, read_rows

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += [ROOT / "data" / "weights" / "README.md"]
PARAMS = [page if page.name == "README.md" else pytest.param(page, marks=pytest.mark.full) for page in PAGES]
COMMAND = re.compile(
    r"(?:python (?:-m lantern\.)?|lantern-|torchrun (?:--\S+ )+)"
    r"(train|evaluate|export|score|contact)(?:\.py)?(?= |$)(.*)"
)
SETTING = re.compile(r"[+~]{0,2}[a-z][\w./@]*=[^\s=]\S*")
FLAGS = {"-m", "--multirun", "--help"}


@cache
def code_of(page: Path) -> tuple[list[str], list[str]]:
    """The lines of a page's code blocks; its inline code, unwrapped."""
    text = page.read_text()
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    inline = [re.sub(r"\s*\n\s*", " ", code) for code in re.findall(r"`([^`]+)`", prose)]
    return lines + "\n".join(fenced).splitlines(), inline


def all_code(page: Path) -> list[str]:
    blocks, inline = code_of(page)
    return blocks + inline


def overrides_of(arguments: str) -> list[str]:
    """The overrides of a command as Hydra reads them; placeholders such as … and <run folder> are words."""
    arguments = re.sub(r"\[@\w+\]", "", re.sub(r"<[^>]*>", "x", arguments)).replace("…", "x")
    words = [word for word in shlex.split(arguments, comments=True) if word not in FLAGS]
    if "--config-dir" in words:  # what follows names yamls of the reader's own
        words = words[: words.index("--config-dir")]
    return words


def points(overrides: list[str]) -> list[tuple[str, ...]]:
    """Each value of a multi-run once, the other overrides at their first."""
    parsed = OverridesParser.create().parse_overrides(overrides)
    values = [
        [f"{text.split('=', 1)[0]}={value}" for value in override.sweep_string_iterator()]
        if override.is_sweep_override()
        else [text]
        for text, override in zip(overrides, parsed, strict=True)
    ]
    first = [choices[0] for choices in values]
    return [(*first[:i], choice, *first[i + 1 :]) for i, choices in enumerate(values) for choice in choices] or [()]


@cache
def error_of(name: str, overrides: tuple[str, ...]) -> str | None:
    try:
        composed(name, *overrides)
    except Exception as error:
        return f"{name} {' '.join(overrides)}: {error}"
    return None


def errors_of(name: str, arguments: str) -> list[str]:
    return [found for point in points(overrides_of(arguments)) if (found := error_of(name, point))]


@pytest.mark.parametrize("page", PARAMS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_composes(page):
    """Catches a method, group or key that was renamed after the page was written."""
    commands = [found for line in all_code(page) if (found := COMMAND.match(line))]
    assert [error for found in commands for error in errors_of(*found.groups())] == []


@pytest.mark.parametrize("page", PARAMS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_in_the_text_belongs_to_a_command(page):
    """Catches the same in inline code such as `+method=jacobi`; a setting may be of any of the commands."""
    settings = [code for code in code_of(page)[1] if all(map(SETTING.fullmatch, code.split()))]
    assert [code for code in settings if all(errors_of(name, code) for name in ("evaluate", "train", "score"))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_method_in_a_table_is_a_preset(page):
    """Catches the same in the tables of results, whose first column names methods."""
    tables = re.findall(r"^\| method \|.*\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE)
    named = {name for table in tables for name in re.findall(r"^\|[^`|]*`(\w+)", table, re.MULTILINE)}
    assert named <= {path.stem for path in (CONF / "method").glob("*.yaml")}


def test_every_make_target_exists():
    """Catches a target that was renamed."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {word for page in PAGES for code in all_code(page) for word in re.findall(r"^make ([\w-]+)", code)}
    assert shown
    assert shown <= targets


def anchors_of(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_picture_and_file_exists(page):
    """Catches a link, a picture or a module that has moved; modules may be named by the end of their path."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text())
    missing = [link for link, _ in links if not (page.parent / link).exists()]
    missing += [part for link, part in links if part and part not in anchors_of(page.parent / link if link else page)]
    words = [word for code in code_of(page)[1] for word in code.split()]
    paths = [word for word in words if re.fullmatch(r"[\w/-]+\.(py|md)|(lantern|conf|tests|docs|data)/[\w/.-]*", word)]
    modules = [str(path) for path in (ROOT / "lantern").rglob("*.py")]
    missing += [
        path
        for path in paths
        if not (ROOT / path).exists() and not any(module.endswith(f"/{path}") for module in modules)
    ]
    assert missing == []


@cache
def kept_rows() -> list[Row]:
    return [row for path in sorted((ROOT / "docs" / "rows").rglob("*.jsonl")) for row in read_rows(path)]


def with_bounds(row: Row, key: str) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(*(row[f"{key}{end}"] for end in ("", "_low", "_high")))


@pytest.mark.parametrize("page", ["README.md", *(f"docs/lab/{name}.md" for name in ("gpu", "negative", "worlds"))])
def test_every_figure_with_bounds_is_of_a_kept_row(page):
    """Catches a figure that was typed, or left behind when its row was measured again."""
    keys = [(row, key) for row in kept_rows() for key in row if row.get(f"{key}_low") is not None]
    known = {with_bounds(row, key) for row, key in keys}
    figures = re.findall(r"-?\d+\.\d\d \[-?\d+\.\d\d, -?\d+\.\d\d\]", (ROOT / page).read_text())
    assert figures
    assert [figure for figure in figures if figure not in known] == []


def test_the_map_names_every_package():
    """Catches a folder or module of the package that docs/architecture.md leaves out."""
    _, _, text = (ROOT / "docs" / "architecture.md").read_text().partition("## Packages")
    rows = re.findall(r"^\| (`[^|]*`) \|", text.partition("\n## ")[0], re.MULTILINE)
    named = {name.rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)}
    rooms = {path.relative_to(ROOT / "lantern").parts[0] for path in (ROOT / "lantern").rglob("*.py")}
    assert named == {room.removesuffix(".py") for room in rooms if not room.startswith("_")}
