"""Makes PyPI's torchvision importable beside a CPU build of torch, by defining the C++ operators that it lacks there.
pytorch_lightning, torch_fidelity and transformers import torchvision where it is installed. provide() is for processes
of commands alone, before any of these is imported: what a program does that imports lantern is not ours to change.
python -m lantern.cli.torchvision_operators, the end of `make env`, mends torchvision itself, for every program."""

import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

MENDED = """

if not _has_ops():  # written by python -m lantern.cli.torchvision_operators: this torch is another build
    _operators = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


class _Finder(MetaPathFinder):
    """Gives torchvision a loader that tries again with the missing operators; leaves all other modules alone."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == "torchvision" else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        try:
            super().exec_module(module)
        except (RuntimeError, ImportError):  # "operator torchvision::nms does not exist"
            from torch import library  # not needed by a process that never imports torchvision

            for name in [name for name in sys.modules if name.startswith("torchvision.")]:
                del sys.modules[name]
            self.operators = library.Library("torchvision", "DEF")  # which removes them when it is collected
            for name in ("nms", "qnms"):
                self.operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            super().exec_module(module)


def provide() -> None:
    """From now on, an import of torchvision that fails tries again with the operators."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def mend() -> None:
    """Writes the operators into the installed torchvision, if it is there and an import of it fails without them."""
    spec = PathFinder.find_spec("torchvision")
    fails = [sys.executable, "-c", "import torchvision"]
    if spec is None or subprocess.run(fails, capture_output=True).returncode == 0:
        return
    extension = Path(str(spec.origin)).with_name("extension.py")
    source = extension.read_text("utf-8")
    if MENDED not in source:
        extension.write_text(source + MENDED, "utf-8")


if __name__ == "__main__":
    mend()
