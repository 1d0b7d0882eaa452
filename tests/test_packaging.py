"""The package as pip installs it: a wheel and an editable install in environments of their own, used from elsewhere."""

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_requirements_are_the_dependencies_and_the_dev_extra():
    """Catches a version that is changed in one of the two files alone."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]
    assert pinned == PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, "--no-deps"]
    done = subprocess.run([*command, "--no-build-isolation", "--quiet"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("wheel")
    _pip("wheel", ".", "--wheel-dir", str(folder))
    return str(next(folder.glob("lantern-*.whl")))


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
    code = "import lantern, os; print(lantern.__file__, os.environ['LANTERN_ROOT'], os.environ['LANTERN_CACHE'])"
    package, root, cache = (Path(found) for found in _run([str(scripts / "python"), "-c", code], elsewhere).split())
    assert root == package.parent / "home"
    assert package.is_relative_to(tmp_path)
    assert cache == elsewhere / ".cache" / "lantern"
    assert "model=llamagen" in _run([str(scripts / "lantern-evaluate"), "dry_run=true"], elsewhere)
    _run([str(scripts / "lantern-evaluate"), "+sweep=field", "+method=jacobi", "dry_run=true"], elsewhere)
    assert "task_name: drafter" in _run([str(scripts / "lantern-train"), "--cfg", "job"], elsewhere)
    images = ["speed.num_prompts=0", "quality.num_images=0", "prompts=['a red ring on wood']", "drafter=none"]
    _run([str(scripts / "lantern-evaluate"), *images, "acceptance=exact", "hydra.run.dir=run"], elsewhere)
    assert list((elsewhere / "run").rglob("*.png"))
