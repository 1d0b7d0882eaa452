"""The package's structure: import direction, unique file names, documentation."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from hydra.experimental.callback import Callback as HydraCallback
from pytorch_lightning.loggers import WandbLogger
from support.paths import ROOT, TESTS

PACKAGE = ROOT / "lantern"
ORDER = (  # lowest first: a module imports from its own room and lower ones
    "errors",
    "_torchvision",
    "hashing",
    "noise",
    "types",
    "sampling",
    "runtime",
    "identity",
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
    "metrics",
    "evaluation",
    "tuning",
    "reporting",
    "experiments",
    "cli",
    "training",
    "scenes",
    "streaming",
    "api",
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
FRAMEWORKS = (  # whose hooks are documented there
    pl.LightningModule, pl.LightningDataModule, pl.Callback, WandbLogger, HydraCallback, torch.autograd.Function,
    torch.optim.Optimizer,
)  # fmt: skip
FRAMEWORK_HOOKS = frozenset(chain.from_iterable(map(dir, FRAMEWORKS)))


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
    """Imports of a module that run upward in ORDER or join what is SEPARATE."""
    imported = [name for name in imports_of(source) if name.split(".")[0] == "lantern"]
    upward = [name for name in imported if RANK[room_of(name)] > RANK[room_of(module)]]
    apart = [name for name in imported if any(module.startswith(a) and name.startswith(b) for a, b in SEPARATE)]
    return [f"{module} -> {name}" for name in (*upward, *apart)]


@cache
def sources() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_imports_run_downward():
    assert [found for path, source in sources().items() for found in forbidden_imports(module_name(path), source)] == []


def test_the_package_does_not_import_the_tools():
    """Catches a wheel that fails to import what only the checkout has."""
    imported = {path.name: list(imports_of(source)) for path, source in sources().items()}
    assert [name for name, modules in imported.items() if any(m.split(".")[0] == "tools" for m in modules)] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("lantern.data.samples", "from lantern.pipeline import Pipeline"),
        ("lantern.data.features", "from lantern.training.drafter.teacher_forcing import target_features"),
        ("lantern.models.t5", "from lantern.scenes.captions import VOCABULARY"),
        ("lantern.evaluation.evaluate", "from lantern.reporting.wandb_runs import run_name"),
        ("lantern.evaluation.rows", "from lantern.models.checkpoints import replace_file"),
        ("lantern.reporting.ranking", "from lantern.reporting.page.write import shown"),
        ("lantern.drafters.jacobi.branches", "from lantern.verification.shared_noise import PICK_SPREAD"),
        ("lantern.pipeline", "from lantern.metrics.profile import RunningProfile"),
        ("lantern.pipeline", "def assemble():\n    import lantern.tuning.auto"),
    ],
)
def test_an_upward_or_sideways_import_is_found(module, line):
    """The imports that once ran the wrong way. Catches a checker that overlooks a form of import or a room."""
    assert len(forbidden_imports(module, line)) == 1


def borrowed(source: str) -> list[str]:
    """The test modules that a module imports."""
    return [name for name in imports_of(source) if name.rsplit(".")[-1].startswith("test_")]


def test_what_test_modules_share_is_in_support():
    """Catches a test module that fails with another, or cannot be moved or deleted without it."""
    found = {path: borrowed(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}
    assert {path.name: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line", ["from models.test_graphs import decode", "import test_laws", "def f():\n    import a.test_b"]
)
def test_an_import_of_a_test_module_is_found(line):
    assert len(borrowed(line)) == 1


def test_file_names_are_unique():
    counts = Counter(path.name for path in sources())
    assert {name for name, count in counts.items() if count > 1} <= SAME_NAME


def _classes() -> Iterator[ast.ClassDef]:
    for source in sources().values():
        yield from (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))


def _is_protocol(node: ast.ClassDef) -> bool:
    return any("Protocol" in ast.unparse(base) for base in node.bases)


@cache
def contract_members() -> frozenset[str]:
    """Names of protocol methods and attributes, whose implementations need no docstring of their own."""
    parts = [part for node in _classes() if _is_protocol(node) for part in node.body]
    methods = {part.name for part in parts if isinstance(part, ast.FunctionDef)}
    return frozenset(methods | {ast.unparse(part.target) for part in parts if isinstance(part, ast.AnnAssign)})


def undocumented(module: str, source: str) -> Iterator[str]:
    """Public classes, functions and methods without a docstring; nested functions and protocol stubs are left out."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield f"{module}.{node.name}"
            if isinstance(node, ast.ClassDef) and not _is_protocol(node):
                yield from (f"{module}.{node.name}.{name}" for name in _undocumented_methods(node))


def _undocumented_methods(node: ast.ClassDef) -> Iterator[str]:
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_") and not ast.get_docstring(part):
            is_override = part.name in contract_members() or (node.bases and part.name in FRAMEWORK_HOOKS)
            if not is_override:
                yield part.name


def test_every_public_definition_is_documented():
    missing = [name for path, source in sources().items() for name in undocumented(module_name(path), source)]
    assert missing == []


def test_a_missing_docstring_is_found():
    source = "class Shown:\n    def draw(self): ...\n    def _helper(self): ...\ndef made(): ...\n"
    assert list(undocumented("m", source)) == ["m.Shown", "m.Shown.draw", "m.made"]
