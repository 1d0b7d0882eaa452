"""Makes torchvision importable beside a CPU build of torch, by defining the C++ operators that are missing there. Must
be imported before pytorch_lightning, torch_fidelity and transformers, which import torchvision."""

from torch import library

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def _define_missing() -> library.Library | None:
    try:
        import torchvision  # noqa: F401
    except (RuntimeError, ImportError):  # "operator torchvision::nms does not exist"
        operators = library.Library("torchvision", "DEF")
        for schema in _SCHEMAS.values():
            operators.define(schema)
        return operators
    return None


_library = _define_missing()  # a module attribute: a Library that is collected removes its operators
