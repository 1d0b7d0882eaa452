"""Lets torchvision load beside a CPU build of torch, whose missing C++ operators would otherwise break its import,
and with it that of pytorch_lightning, torch_fidelity and transformers. Must be imported before any of them."""

from torch import library

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def _define_missing() -> library.Library | None:
    try:
        import torchvision  # noqa: F401
    except (RuntimeError, ImportError):  # "operator torchvision::nms does not exist"
        kept = library.Library("torchvision", "DEF")
        for schema in _SCHEMAS.values():
            kept.define(schema)
        return kept
    return None


_library = _define_missing()  # kept alive: a collected Library takes its operators with it
