"""python -m lantern.contact: whether released weights are what their loader expects, by the headers of their files,
without the weights; and, where they are on this machine, whether a window draws the tokens of plain decoding."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern.cli.error_messages import in_one_sentence, without_hints
from lantern.cli.settings import check_added, group_of, register_help
from lantern.errors import LanternError, first_line
from lantern.runtime.files import replace_text
from lantern.runtime.home import CONFIG_FOLDER

NAMED = 8  # names of a difference that are printed
Shapes = dict[str, list[int]]
register_help()


@without_hints
@hydra.main(version_base="1.3", config_path=str(CONFIG_FOLDER), config_name="contact")
@in_one_sentence
def contact(cfg: DictConfig) -> None:
    """Compares and decodes, prints a summary, and writes all of it to the file `to`."""
    from lantern.identity import machine
    from lantern.models.checkpoints import expected_weights

    run = HydraConfig.get()
    check_added(cfg, run.overrides.task, run.runtime.choices, "contact")
    if cfg.decode not in (True, False, "auto"):
        raise LanternError(f"decode={cfg.decode} is neither true, false nor auto; give one of them")
    expected_weights.clear()
    instantiate(OmegaConf.merge(cfg, {"device": "meta"}).model)
    found: dict[str, Any] = {"model": run.runtime.choices.model, "settings": list(run.overrides.task)}
    found |= {
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "machine": machine(cfg),
        "weights": [compare_weights(one) for one in expected_weights],
    }
    is_here = all(one["is_local"] and one["read"] and not one["differences"] for one in found["weights"])
    if cfg.decode is True or (cfg.decode == "auto" and is_here):
        found["decoding"] = decode_twice(found["model"], found["settings"], cfg.prompt)
    replace_text(Path(cfg.to), json.dumps(found, indent=2) + "\n")
    print("\n".join([*summary(found), str(cfg.to)]))


def compare_weights(expected: Any) -> dict[str, Any]:
    """What is in a checkpoint against what its loader expects: names that are missing, in excess or of other shapes."""
    from lantern.models.checkpoints import differences

    shapes, files, problem = read_headers(expected)
    is_local = Path(expected.source).expanduser().exists()
    found = {"source": expected.source, "is_local": is_local, "files": files, "problem": problem}
    others = differences(expected.shapes, shapes, expected.ignored) if shapes else {}
    return found | {"expected": len(expected.shapes), "read": len(shapes), "differences": others}


def read_headers(expected: Any) -> tuple[Shapes, dict[str, int], str]:
    """The shapes of all weights by name, the sizes of the files that hold them, and why shapes cannot be told. A local
    .pt is read with its weights, one of the Hub is not."""
    from lantern.models.hub import HUB_ID

    path = Path(expected.source).expanduser()
    try:
        if path.exists():
            return _read_local(path, expected)
        if not HUB_ID.fullmatch(expected.source):
            return {}, {}, "nothing there, and no Hub id"
        return _read_remote(expected.source, expected.file)
    except Exception as error:  # of the Hub's client and its connections, and of damaged files
        return {}, {}, first_line(error)


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


def decode_twice(name: str, overrides: Sequence[str], prompt: str | None) -> dict[str, Any]:
    """An image by plain decoding and by a Jacobi window under the same noise."""
    from lantern.api import OF_A_MODEL, load

    given = [one for one in overrides if group_of(one) in OF_A_MODEL and not one.startswith("model=")]
    model = load(name, given)
    window = model.pipeline(method="jacobi")
    prompt = prompt or model.prompts[0]
    made, seconds = {}, {}
    for label, pipeline in (("plain", window.baseline()), ("window", window)):
        pipeline.generate([prompt], [0], 1)  # the first pass of a device takes longer
        start = perf_counter()
        made[label] = pipeline.generate([prompt], [0], 1)
        seconds[label] = perf_counter() - start
    plain, other = (made[label].tokens[0].tolist() for label in ("plain", "window"))
    same = next((i for i, pair in enumerate(zip(plain, other, strict=True)) if pair[0] != pair[1]), len(plain))
    return {
        "prompt": prompt, "dtype": str(model.target.embed_weight.dtype).removeprefix("torch."), "seconds": seconds,
        "tokens_per_step": made["window"].tokens_per_step, "equal_tokens": same, "tokens": plain,
    }  # fmt: skip


def summary(found: Mapping[str, Any]) -> list[str]:
    """A line a checkpoint, and one for decoding."""
    lines = []
    for one in found["weights"]:
        there = f"{one['read']} weights are there" if one["read"] else f"not looked at ({one['problem']})"
        lines.append(f"{one['source']}: {there}, {one['expected']} weights are expected")
        for kind, names in one["differences"].items():
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            lines.append(f"  {len(names)} {kind}: {', '.join(names[:NAMED])}{more}")
    if made := found.get("decoding"):
        lines.append(
            f"a window draws {made['equal_tokens']} of {len(made['tokens'])} tokens of plain decoding in "
            f"{made['dtype']}, {made['tokens_per_step']:.2f} a step, in {made['seconds']['window']:.1f} s instead of "
            f"{made['seconds']['plain']:.1f}"
        )
    return lines


if __name__ == "__main__":
    contact()
