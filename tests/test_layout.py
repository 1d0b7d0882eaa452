"""The package's structure: its size, the direction of imports, and unique file names."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.paths import ROOT

PACKAGE = ROOT / "lantern"
ORDER = (  # lowest first: a module imports from its own room and lower ones
    "version",
    "errors",
    "hashing",
    "noise",
    "draft_tree",
    "types",
    "sampling",
    "figures",
    "runtime",
    "identity",
    "certificates",
    "acceptance",
    "trees",
    "data",
    "verification",
    "engine",
    "models",
    "decoding",
    "drafters",
    "row_parallel",
    "continuous",
    "pipeline",
    "laws",
    "metrics",
    "evaluation",
    "tuning",
    "reporting",
    "experiments",
    "cli",
    "score",
    "training",
    "scenes",
    "streaming",
    "api",
    "acceleration",
    "fitting",
    "contact",
    "live",
    "__main__",
    "",
)
RANK = {room: rank for rank, room in enumerate(ORDER)}
SEPARATE = (  # not upward, and still no business of the importing module
    ("lantern.drafters", "lantern.verification"),  # drafters know a verification by its Proposals alone
    ("lantern.evaluation.rows", "lantern.models"),  # atomic writes are in runtime.files
    ("lantern.reporting.ranking", "lantern.reporting.page"),  # numbers do not depend on their display
)
SAME_NAME = {
    "__init__.py",
    "target.py",  # one per family of targets: models/llamagen, models/hf, continuous
}


BUDGETS = {  # the most; last changed on 2026-11-30. Who raises one says in the CHANGELOG what entered and what left
    "lines of lantern/": 23_800,
    "lines of tests/": 25_090,
    "words of the manual, docs/*.md": 10_000,
}


def imports_of(source: str) -> Iterator[str]:
    """The modules of this package that a module imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "lantern":
            yield from (f"lantern.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def forbidden_imports(module: str, source: str) -> list[str]:
    """Imports of a module that run upward in ORDER, join what is SEPARATE, or need what only the checkout has."""
    names = list(imports_of(source))
    imported, missing = [n for n in names if n.split(".")[0] == "lantern"], [n for n in names if n.startswith("tools")]
    upward = [name for name in imported if RANK[room_of(name)] > RANK[room_of(module)]]
    apart = [name for name in imported if any(module.startswith(a) and name.startswith(b) for a, b in SEPARATE)]
    return [f"{module} -> {name}" for name in (*upward, *apart, *missing)]


@cache
def sources() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_imports_run_downward():
    assert [found for path, source in sources().items() for found in forbidden_imports(module_name(path), source)] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("lantern.data.features", "from lantern.training.drafter.teacher_forcing import target_features"),
        ("lantern.evaluation.rows", "from lantern.models.checkpoints import replace_file"),
        ("lantern.cli.main", "from tools.markdown import split_page"),
        ("lantern.pipeline", "def assemble():\n    import lantern.tuning.auto"),
    ],
)
def test_an_upward_or_sideways_import_is_found(module, line):
    """The imports that once ran the wrong way. Catches a checker that overlooks a form of import or a room."""
    assert len(forbidden_imports(module, line)) == 1


def test_file_names_are_unique():
    counts = Counter(path.name for path in sources())
    assert {name for name, count in counts.items() if count > 1} <= SAME_NAME


def test_the_project_stays_within_its_budgets():
    """Catches growth that nobody decided on: CONTRIBUTING says what may enter."""
    lines = {
        name: sum(len(path.read_text().splitlines()) for path in (ROOT / name).rglob("*.py"))
        for name in ("lantern", "tests")
    }
    texts = " ".join(path.read_text() for path in (ROOT / "docs").glob("*.md")).split()
    words = sum(any(map(str.isalnum, text)) for text in texts)  # the bars of tables are none
    sizes = dict(zip(BUDGETS, (lines["lantern"], lines["tests"], words), strict=True))
    assert {name: size for name, size in sizes.items() if size > BUDGETS[name]} == {}
