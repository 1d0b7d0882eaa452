"""The package as pip installs it: a wheel and an editable install in environments of their own, used from elsewhere."""

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.commands import python
from support.paths import ROOT
from test_layout import imports_of

import lantern
from tools.torchvision_operators import mend

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
BY_CONFIG = {"hydra-joblib-launcher"}  # conf/launch names it, no module does
DISTRIBUTIONS = {"pynvml": "nvidia-ml-py"}  # of modules that the locked environment lacks
PLACES = """
import os, lantern
from lantern.runtime.home import export_paths
export_paths()
print(lantern.__file__, os.environ["LANTERN_ROOT"], os.environ["LANTERN_CACHE"])
"""
STATE = """
import logging, os, sys, warnings
def state():
    hooks = [sys.meta_path, sys.path_hooks, sys.path, sys.excepthook, sys.displayhook, sys.argv, sys.stdout, sys.stderr]
    return repr((hooks, dict(os.environ), os.getcwd(), warnings.filters, logging.root.handlers, logging.root.level))
"""


def ranges(listed: list[str]) -> dict[str, Requirement]:
    """By name in lower case; an extra that takes in others of this project's is not looked into."""
    found = {canonicalize_name(need.name): need for need in map(Requirement, listed)}
    return {name: need for name, need in found.items() if name != PROJECT["name"]}


DECLARED = ranges(PROJECT["dependencies"])
LOCKED = DECLARED | ranges([*EXTRAS["metrics"], *EXTRAS["slurm"], *EXTRAS["dev"]])


def test_the_lock_has_exact_versions_within_the_ranges():
    """Catches a dependency without a locked version, and a range that leaves out what continuous integration runs."""
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    lock = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    assert [str(need) for name, need in LOCKED.items() if lock.get(name) not in need.specifier] == []


def test_ranges_have_a_floor_and_pin_nothing():
    """Catches a pin, which no other environment can hold, and a floor that nobody has tested."""
    exact = [str(need) for need in LOCKED.values() if {"==", "===", "~="} & {each.operator for each in need.specifier}]
    open_below = [str(need) for need in LOCKED.values() if ">=" not in {each.operator for each in need.specifier}]
    assert exact + open_below == []


def test_every_import_is_declared_and_every_dependency_used():
    """Catches a library that is there by luck of another, and one that is installed for nothing."""
    modules = [path for folder in ("lantern", "hydra_plugins") for path in (ROOT / folder).rglob("*.py")]
    names = {name.split(".")[0] for path in modules for name in imports_of(path.read_text())}
    foreign = names - sys.stdlib_module_names - {"lantern", "hydra_plugins"}
    known = packages_distributions()
    used = {canonicalize_name(DISTRIBUTIONS.get(name) or known.get(name, [name])[0]) for name in foreign}
    optional = ranges([need for extra in ("metrics", "gpu", "pixels") for need in EXTRAS[extra]])
    assert used <= DECLARED.keys() | optional.keys()
    assert DECLARED.keys() - used == BY_CONFIG


def test_an_import_changes_nothing_in_the_process():
    """Catches a hook, a filter, a handler or a variable that `import lantern` leaves in the program of its user."""
    code = f"{STATE}\nbefore = state()\nimport lantern\nprint(state() == before)"
    assert python("-c", code).stdout.split() == ["True"]


def _pip(*arguments: str) -> None:
    quiet = "--no-deps", "--no-build-isolation", "--quiet"
    python("-m", "pip", "--disable-pip-version-check", *arguments, *quiet)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("wheel")
    _pip("wheel", ".", "--wheel-dir", str(folder))
    return str(next(folder.glob("lantern_ar-*.whl")))


@pytest.fixture
def scripts(request, tmp_path, wheel) -> Path:
    """The folder of the scripts of an environment with lantern alone, that borrows all else from the running one."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    own = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (own / "borrowed.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    source = {"wheel": [wheel], "editable": ["-e", "."]}[request.param]
    _pip("--python", str(python), "install", "--ignore-installed", *source)
    return python.parent


def _run(command: list[str], folder: Path) -> str:
    unset = {"LANTERN_ROOT", "LANTERN_CACHE", "PYTHONPATH"}
    environment = {name: value for name, value in os.environ.items() if name not in unset} | {"HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_citation_is_of_this_version():
    """Catches a second place with a version."""
    assert f"\nversion: {lantern.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.full
def test_the_wheel_is_typed_and_has_the_version_of_the_package(wheel):
    """Catches a second place with a version, and types that a reader's type checker is not told of."""
    assert f"lantern_ar-{lantern.__version__}-" in wheel
    assert "lantern/py.typed" in zipfile.ZipFile(wheel).namelist()


@pytest.mark.full
@pytest.mark.parametrize("scripts", ["editable"], indirect=True)
def test_an_editable_install_finds_the_checkout_from_another_folder(scripts, tmp_path):
    """Catches configs or weights that are looked for in the working folder, or in the package as a wheel has them."""
    assert "model=llamagen" in _run([str(scripts / "lantern-evaluate"), "dry_run=true"], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("scripts", ["wheel"], indirect=True)
def test_an_installed_wheel_works_in_another_folder_with_its_own_files(scripts, tmp_path):
    """Catches configs, prompts or weights that are left out of the wheel or looked for in the working folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    package, root, cache = (Path(found) for found in _run([str(scripts / "python"), "-c", PLACES], elsewhere).split())
    assert root == package.parent / "home"
    assert package.is_relative_to(tmp_path)
    assert cache == elsewhere / ".cache" / "lantern"
    planned = [str(scripts / "lantern-evaluate"), "+sweep=field", "+method=jacobi", "dry_run=true"]
    assert "model=llamagen" in _run(planned, elsewhere)
    assert "task_name: drafter" in _run([str(scripts / "lantern-train"), "--cfg", "job"], elsewhere)
    images = ["speed.num_prompts=0", "quality.num_images=0", "prompts=['a red ring on wood']", "drafter=none"]
    _run([str(scripts / "lantern-evaluate"), *images, "acceptance=exact", "hydra.run.dir=run"], elsewhere)
    assert list((elsewhere / "run").rglob("*.png"))


def test_pypis_torchvision_is_imported_beside_a_cpu_build_of_torch(tmp_path, monkeypatch):
    """In plain Python, once `make env` has written its operators into it; here another package stands in for it."""
    fake = "from .extension import torch\n\ntorch.library.register_fake('torchvision::nms')(print)\n"
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(fake)
    (tmp_path / "torchvision" / "extension.py").write_text("import torch\n\n_has_ops = bool\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    imports = [sys.executable, "-c", "import torchvision"]
    assert b"operator torchvision::nms does not exist" in subprocess.run(imports, capture_output=True).stderr
    mend()
    subprocess.run(imports, check=True)
