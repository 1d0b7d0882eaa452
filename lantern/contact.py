"""python -m lantern.contact: whether released weights are what their loader expects, by the headers of their files,
without the weights."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern.cli.error_messages import command
from lantern.errors import first_line
from lantern.runtime.files import replace_text

NAMED = 8  # names of a difference that are printed
Shapes = dict[str, list[int]]


@command("contact")
def contact(cfg: DictConfig) -> None:
    """Prints a summary, and writes all of it to the file `to`."""
    from lantern.models.checkpoints import expected_weights
    from lantern.runtime.provenance import machine

    run = HydraConfig.get()
    expected_weights.clear()
    instantiate(OmegaConf.merge(cfg, {"device": "meta"}).model)
    found: dict[str, Any] = {"model": run.runtime.choices.model, "settings": list(run.overrides.task)}
    found |= {
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "machine": machine(cfg),
        "weights": [compare_weights(one) for one in expected_weights],
    }
    replace_text(Path(cfg.to), json.dumps(found, indent=2) + "\n")
    print("\n".join([*summary(found), str(cfg.to)]))


def compare_weights(expected: Any) -> dict[str, Any]:
    """What is in a checkpoint against what its loader expects: names that are missing, in excess or of other shapes; or
    why that cannot be told. A local .pt is read with its weights, one of the Hub is not."""
    from lantern.models.checkpoints import differences
    from lantern.models.hub import HUB_ID

    path = Path(expected.source).expanduser()
    shapes, files, problem = Shapes(), dict[str, int](), "nothing there, and no Hub id"
    try:
        if path.exists():
            shapes, files, problem = _read_local(path, expected)
        elif HUB_ID.fullmatch(expected.source):
            shapes, files, problem = _read_remote(expected.source, expected.file)
    except Exception as error:  # of the Hub's client and its connections, and of damaged files
        problem = first_line(error)
    others = differences(expected.shapes, shapes, expected.ignored) if shapes else {}
    found = {"source": expected.source, "is_local": path.exists(), "files": files, "problem": problem}
    return found | {"expected": len(expected.shapes), "read": len(shapes), "differences": others}


def _read_local(path: Path, expected: Any) -> tuple[Shapes, dict[str, int], str]:
    from safetensors import safe_open

    one = path if path.is_file() else path / (expected.file or "")
    found = [one] if one.is_file() else sorted(path.rglob("*.safetensors"))
    shapes: Shapes = {}
    for weights in found:
        if weights.suffix == ".safetensors":
            with safe_open(weights, "pt") as opened:
                shapes |= {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
        else:
            shapes |= {name: list(value.shape) for name, value in expected.read(weights).items()}
    return shapes, {weights.name: weights.stat().st_size for weights in found}, "" if found else "no weights there"


def _read_remote(source: str, file: str | None) -> tuple[Shapes, dict[str, int], str]:
    import huggingface_hub

    repository, _, revision = source.partition("@")
    client = huggingface_hub.HfApi()
    info = client.model_info(repository, revision=revision or None, files_metadata=True)
    sizes = {one.rfilename: one.size or 0 for one in info.siblings or []}
    names = [file] if file in sizes else [name for name in sizes if name.endswith(".safetensors")]
    shapes: Shapes = {}
    for name in names:
        if name.endswith(".safetensors"):
            header = client.parse_safetensors_file_metadata(repository, name, revision=revision or None)
            shapes |= {key: list(tensor.shape) for key, tensor in header.tensors.items()}
    return (
        shapes,
        {name: sizes[name] for name in names},
        "" if shapes else "a .pt file has no header that can be read without its weights",
    )


def summary(found: Mapping[str, Any]) -> list[str]:
    """A line a checkpoint, and one a kind of difference."""
    lines = []
    for one in found["weights"]:
        there = f"{one['read']} weights are there" if one["read"] else f"not looked at ({one['problem']})"
        lines.append(f"{one['source']}: {there}, {one['expected']} weights are expected")
        for kind, names in one["differences"].items():
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            lines.append(f"  {len(names)} {kind}: {', '.join(names[:NAMED])}{more}")
    return lines


if __name__ == "__main__":
    contact()
