"""Writes a drafter into a folder of its own: what export.py does."""

from pathlib import Path
from typing import Any

from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.jacobi.corrected import WindowNetwork
from lantern.drafters.loading import OF_A_WINDOW, drafter_folder, load_network, read_drafter
from lantern.errors import LanternError
from lantern.models.checkpoints import FILE_SUFFIXES, WEIGHTS_FILE, read_weights, save_weights
from lantern.runtime.files import EXPORTED, read_object
from lantern.types import Target

VALIDATED = "validated"  # key of a training's checkpoints


def write_drafter(checkpoint: str, target: Target, folder: str) -> Path:
    """model.safetensors and config.json in our names: what evaluate.py and train.py read, from either layout."""
    _check_place(Path(folder))
    found = drafter_folder(checkpoint)
    state, config = read_drafter(found)
    kind = WindowNetwork if OF_A_WINDOW in config else EagleNetwork
    load_network(found, target, kind=kind)  # raises for what does not fit
    return save_weights(folder, state, config)


def exported_step(weights: Path) -> dict[str, Any]:
    """{"step", "figures": of the validation after it, "evaluate_with": settings of evaluate.py} of the weights that a
    training's run has exported; empty where that is not on record."""
    noted = read_object(weights.parent / EXPORTED)
    return noted if noted.get("weights") == weights.name else {}


def _check_place(folder: Path) -> None:
    """Refuses a folder whose weights are no drafter that was exported there before: they would be lost."""
    found = {path.name for path in folder.glob("*") if path.suffix in FILE_SUFFIXES}
    if found and not (found == {WEIGHTS_FILE} and "fc.weight" in read_weights(folder / WEIGHTS_FILE)):
        raise LanternError(f"to={folder} holds {', '.join(sorted(found))}, which is no drafter; give another folder")
