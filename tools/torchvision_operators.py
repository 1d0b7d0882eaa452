"""python -m tools.torchvision_operators, the end of `make env`: makes PyPI's torchvision importable beside a CPU
build of torch, by defining in it the C++ operators that it lacks there. pytorch_lightning, torch_fidelity and
transformers import torchvision where it is installed."""

import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

MENDED = """

if not _has_ops():  # written by python -m tools.torchvision_operators: this torch is another build
    _operators = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


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
