"""Full-size checkpoints in the released format, their weights random."""

import json
from pathlib import Path

import torch
from support.paths import GOLDEN


def released_shapes(name: str) -> dict[str, list[int]]:
    """By parameter of a released model; the file keeps one layer of each."""
    stored = json.loads((GOLDEN / "llamagen_transformer_shapes.json").read_text())[name]
    layers = {f"layers.{i}.{part}": shape for i in range(stored["layers"]) for part, shape in stored["layer"].items()}
    return layers | stored["rest"]


def write_llamagen_b(folder: Path) -> None:
    """LlamaGen-B's c2i_B_256.pt and vq_ds16_c2i.pt, 0.8 GB."""
    codes = json.loads((GOLDEN / "llamagen_vq_shapes.json").read_text())["VQ-16"]
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"model": _random(released_shapes("c2i GPT-B"))}, folder / "c2i_B_256.pt")
    torch.save({"model": _random(codes)}, folder / "vq_ds16_c2i.pt")


def _random(shapes: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    """Norms of one, biases of zero, the rest normal at a scale that keeps widths alive."""
    generator = torch.Generator().manual_seed(0)
    made = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            made[name] = torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
        else:
            fan_in = torch.tensor(shape[1:]).prod().item() if "embedding" not in name else 1
            made[name] = torch.randn(shape, generator=generator) / fan_in**0.5
    return made
