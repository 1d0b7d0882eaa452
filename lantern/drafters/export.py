"""Writes a drafter into a folder of its own, and a folder with a model card to the Hub: what export.py does."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from lantern.drafters.loading import drafter_folder, is_training, load_network, read_drafter
from lantern.errors import LanternError, explaining
from lantern.models.checkpoints import (
    CONFIG_FILE,
    FILE_SUFFIXES,
    FOLDER_FILES,
    WEIGHTS_FILE,
    read_file,
    read_weights,
    save_weights,
)
from lantern.models.hub import HUB_ID, commit_of
from lantern.runtime.files import read_object
from lantern.runtime.home import HOME
from lantern.runtime.provenance import PROVENANCE, git_state
from lantern.types import Target

CARD_FILE = "README.md"
EXPORTED, VALIDATED = "exported.json", "validated"  # of a training: the file, and the key of its checkpoints
LENGTHS = ("sim_accept_len", "sim_agree_len")  # drafted tokens that a chain would have accepted
UPLOADED = [CARD_FILE, CONFIG_FILE, *FOLDER_FILES]


def write_drafter(checkpoint: str, target: Target, folder: str) -> Path:
    """model.safetensors and config.json in our names: what evaluate.py and train.py read, from either layout."""
    _check_place(Path(folder))
    found = drafter_folder(checkpoint)
    load_network(found, target)  # raises for what does not fit
    return save_weights(folder, *read_drafter(found))


CARD_TAGS = ["speculative-decoding", "image-generation", "eagle"]
CARD = """---
{header}
---

# A drafter for {model}

An EAGLE drafter head for the visual autoregressive model {model}, whose images it leaves as they are: used losslessly,
every token is one that the model would have drawn. Weights of the target: `{target_hash}`{target}; it is refused for
others.

    python evaluate.py {command}

{figures}{origin}; written by Lantern.
"""


def model_card(
    repository: str, source: str, model: str, overrides: Sequence[str], target_hash: str, base: str | None = None
) -> str:
    """A Hub card for the drafter in `source`, with the figures of the step it is of, if these are known.
    overrides: config overrides that select the target; base: the target's checkpoint, a path or a Hub id."""
    weights = Path(source).expanduser().resolve()
    run = weights.parents[is_training(weights)]  # a checkpoint lies in a folder of its own
    known = json.loads((run / PROVENANCE).read_text()) if (run / PROVENANCE).is_file() else {}
    is_hub_id = base is not None and bool(HUB_ID.fullmatch(base)) and not Path(base).expanduser().exists()
    known_base = str(base).partition("@")[0] if is_hub_id else None
    commit = commit_of(base)
    exported = exported_step(weights)
    figures = {name.removeprefix("val/"): value for name, value in exported.get("figures", {}).items()}
    lengths = {f"{name}, the target's own token left out": figures.pop(name) for name in LENGTHS if name in figures}
    counted = {name.replace("left out", "counted"): value + 1 for name, value in lengths.items()}
    lines = [f"| {name} | {value:.4g} |" for name, value in (counted | lengths | figures).items()]
    told = f"These weights are of step {exported.get('step')}. Its validation, on images that the target draws:"
    table = [told, "", "| figure | value |", "| --- | --- |", *lines]
    return CARD.format(
        header=ModelCardData(library_name="lantern", tags=CARD_TAGS, base_model=known_base).to_yaml(),
        target=f", of {base} at commit {commit}" if commit else "",
        model=model,
        target_hash=target_hash,
        command=shlex.join(
            ["+method=refined_jacobi", f"model={model}", *overrides, f"drafter.checkpoint={repository}"]
        ),
        figures="\n".join([*table, "", ""]) if lines else "",
        origin=_origin(source, known),
    )


def _origin(source: str, known: Mapping) -> str:
    """Where the weights of `source` come from, according to their run's provenance or their location."""
    of_run, of_checkout = (state.get("revision") or "not on record" for state in (known.get("git", {}), git_state()))
    if known:
        return f"Trained by Lantern, revision {of_run}"
    if Path(source).expanduser().resolve().is_relative_to((HOME / "data" / "weights").resolve()):
        return f"Shipped with Lantern, revision {of_checkout}"
    commit = commit_of(source)
    return f"Taken from {source} at commit {commit}" if commit else "Of a training that is not on record"


def push(folder: Path, repository: str, card: str) -> str:
    """Uploads a drafter's files, with its card and nothing else of their folder, to a repository of the Hub, which is
    made if missing -> its address."""
    import huggingface_hub

    place = folder / CARD_FILE
    if place.is_file() and "written by Lantern" not in place.read_text(errors="replace"):
        raise LanternError(f"{place} is not a card that was written here; give to=<a folder of its own>")
    place.write_text(card)
    with explaining(f"push={repository} failed", f"what was to be uploaded is in {folder}", LanternError):
        client = huggingface_hub.HfApi()
        client.create_repo(repository, exist_ok=True)
        return str(client.upload_folder(repo_id=repository, folder_path=folder, allow_patterns=UPLOADED))


def exported_step(source: Path) -> dict[str, Any]:
    """{"step", "figures": of the validation after it} of a training's weights: of a checkpoint, or of what its run has
    exported; empty where that is not on record."""
    if not is_training(source):
        noted = read_object(source.parent / EXPORTED)
        return noted if noted.get("weights") == source.name else {}
    content: Any = read_file(source)
    validated = content.get(VALIDATED) or {"step": content["global_step"], "figures": {}}
    return validated if validated["step"] == content["global_step"] else validated | {"figures": {}}


def _check_place(folder: Path) -> None:
    """Refuses a folder whose weights are no drafter that was exported there before: they would be lost."""
    found = {path.name for path in folder.glob("*") if path.suffix in FILE_SUFFIXES}
    if found and not (found == {WEIGHTS_FILE} and "fc.weight" in read_weights(folder / WEIGHTS_FILE)):
        raise LanternError(f"to={folder} holds {', '.join(sorted(found))}, which is no drafter; give another folder")
