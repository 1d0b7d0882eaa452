"""Makes PyPI's torchvision importable beside a CPU build of torch, by defining the C++ operators that it lacks there.
pytorch_lightning, torch_fidelity and transformers import torchvision where it is installed. For processes of commands
alone, before any of these is imported: what a program does that imports lantern is not ours to change."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType


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
