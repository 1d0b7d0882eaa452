"""python -m lantern.contact: whether released weights are what their loader expects, by their files' headers alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lantern.cli.error_messages import command, starting_line
from lantern.errors import LanternError, first_line

if TYPE_CHECKING:
    from lantern.models.checkpoints import Expected, Shapes


@command("contact")
def contact(cfg: DictConfig) -> None:
    """Prints the settings, a line a checkpoint, and one a kind of difference."""
    run = HydraConfig.get()
    model = f"model={run.runtime.choices.model}"
    if "checkpoint" not in cfg.model:
        raise LanternError(f"{model} has no released weights; give a model that has some, such as model=janus_pro")
    starting = starting_line()  # stands until all headers are read
    from lantern.models.checkpoints import expected_weights

    expected_weights.clear()
    instantiate(OmegaConf.merge(cfg, {"device": "meta"}).model)
    found, unread = [" ".join(dict.fromkeys([model, *run.overrides.task]))], []
    for expected in expected_weights:
        try:
            found += compared(expected)
        except Exception as error:  # of the Hub's client and its connections, and of damaged files
            found.append(f"{expected.source}: not looked at ({first_line(error)})")
            unread.append(expected.source)
    starting.close()
    print("\n".join(found))
    if unread:
        raise LanternError(f"{', '.join(unread)} cannot be read; give a path that can, or a Hub id in reach")


def compared(expected: "Expected") -> Sequence[str]:
    """What is in a checkpoint against what its loader expects: names that are missing, in excess or of other shapes. A
    local .pt is read with its weights, one of the Hub is not."""
    from lantern.models.checkpoints import FILE_SUFFIXES, differences, shortened

    path = Path(expected.source).expanduser()
    is_here = path.exists() or path.is_absolute() or path.suffix in FILE_SUFFIXES  # else an id of the Hub
    shapes = _local(path, expected) if is_here else _remote(expected)
    others = differences(expected.shapes, shapes, expected.ignored)
    told = [f"  {len(names)} {kind}: {shortened(names)}" for kind, names in others.items()]
    return [f"{expected.source}: {len(shapes)} weights are there, {len(expected.shapes)} weights are expected", *told]


def _local(path: Path, expected: "Expected") -> "Shapes":
    from safetensors import safe_open

    one = path if path.is_file() else path / (expected.file or "")
    shapes: Shapes = {}
    for weights in [one] if one.is_file() else sorted(path.rglob("*.safetensors")):
        if weights.suffix == ".safetensors":
            with safe_open(weights, "pt") as opened:
                shapes |= {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
        else:
            shapes |= {name: list(value.shape) for name, value in expected.read(weights).items()}
    if not shapes:
        raise FileNotFoundError("no weights there")
    return shapes


def _remote(expected: "Expected") -> "Shapes":
    from huggingface_hub import HfApi

    repository, _, revision = expected.source.partition("@")
    client, at = HfApi(), revision or None
    found = client.model_info(repository, revision=at)  # one request; a listing is asked for again for half a minute
    names = [file.rfilename for file in found.siblings or []]
    names = [expected.file] if expected.file in names else [name for name in names if name.endswith(".safetensors")]
    if not names or not names[0].endswith(".safetensors"):
        raise ValueError("a .pt file has no header that can be read without its weights")
    headers = [client.parse_safetensors_file_metadata(repository, name, revision=at) for name in names]
    return {key: list(tensor.shape) for header in headers for key, tensor in header.tensors.items()}


if __name__ == "__main__":
    contact()
