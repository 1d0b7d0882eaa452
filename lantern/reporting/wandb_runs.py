"""Weights & Biases runs of evaluations: one run a setting, grouped by sweep. W&B is never asked for a key, and its
failures are warnings: every result is on disk before it is tracked. wandb is imported where a run is sent."""

import logging
import os
import re
import secrets
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlparse

from lantern.drafters.loading import ARTIFACT
from lantern.errors import LanternError
from lantern.evaluation.rows import Row, run_name, setting_id
from lantern.identity import DECODING, PLAIN_DECODING, digest
from lantern.models.checkpoints import weights_hash
from lantern.reporting.ranking import Choice
from lantern.runtime.files import replace_text

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)
INIT_TIMEOUT_S = 30  # an unreachable server must not delay a sweep; offline there is none, and W&B's own limit holds
FINISH_TIMEOUT_S = 600  # for uploads, at the end
MAX_TAG = 64  # letters, of which W&B takes no more
Returned = TypeVar("Returned")
FOLDER_ID_FILE = "wandb.folder_id"
TAGGED = ("model", "drafter", "tree", "verification", "acceptance")  # to filter runs by
MODES = ("auto", "online", "offline", "disabled")


class Guard:
    """Calls W&B. If a call raises anything, even SystemExit, one warning is logged and no more calls are made. kept:
    tells where the data are nevertheless."""

    def __init__(self, kept: str) -> None:
        self._kept, self.has_failed = kept, False

    def __call__(self, call: Callable[..., Returned], *args: object, **settings: object) -> Returned | None:
        if self.has_failed:
            return None
        try:
            return call(*args, **settings)
        except (Exception, SystemExit) as error:
            self.has_failed = True
            reason = str(error) or type(error).__name__
            log.warning("Weights & Biases gets nothing more of this run (%s); %s", reason, self._kept)
            return None


def clean_tags(tags: Iterable[object]) -> list[str]:
    """Every tag once, cut to W&B's limit."""
    return list(dict.fromkeys(str(tag)[:MAX_TAG] for tag in tags if str(tag)))


def tell_offline(folders: Iterable[Path], run: str = "") -> None:
    """Prints the command that sends offline runs below run folders: one command for all parts of a run, so that W&B
    joins them. run: id of the only run to send."""
    places = [place for folder in folders for place in (*folder.glob("wandb"), *folder.glob("*/wandb"))]
    kept = (path for place in places for path in place.glob(f"offline-run-*{run}"))
    if found := {path.parent for path in kept if not any(path.glob("*.synced"))}:
        print(f"kept offline for Weights & Biases; send it by: wandb sync {shlex.join(map(str, sorted(found)))}")


def wandb_mode() -> str:
    """WANDB_MODE if set, else "online" with a key in the environment or netrc, else "offline"."""
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        has_key = os.environ.get("WANDB_API_KEY") or netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, NetrcParseError):
        has_key = False
    return os.environ.get("WANDB_MODE") or ("online" if has_key else "offline")


class Group(NamedTuple):
    """The W&B group of a sweep or an evaluation, and its folder, whose key is made only for what is tracked."""

    name: str
    folder: Path

    def run_id(self, what: str) -> str:
        """The same id for the same setting whenever the sweep runs again in its folder."""
        return digest(f"{folder_id(self.folder)}/{what}")


def group_of(sweep: str | None, folder: str | Path) -> Group:
    """The group of a sweep's name and folder; of a single run's without a sweep."""
    return Group(f"{sweep or 'evaluate'}-{Path(folder).name}", Path(folder))


def folder_id(folder: Path) -> str:
    """A folder's random id, from which those of its W&B runs follow, made once; of two at a time the last is kept."""
    if not (folder / FOLDER_ID_FILE).exists():
        replace_text(folder / FOLDER_ID_FILE, secrets.token_hex(8))
    return (folder / FOLDER_ID_FILE).read_text()


def plain_config(config: Mapping[str, object]) -> dict[str, object]:
    """The configuration of a run's plain decoding: the same, without the method's parts."""
    return {name: value for name, value in config.items() if name not in DECODING or name in PLAIN_DECODING}


def shared_config(configs: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """The settings that all configurations have in common; a group that differs in some keeps its others."""
    first, *others = configs or [{}]
    shared: dict[str, object] = {}
    for name, value in first.items():
        values = [other.get(name) for other in others]
        if isinstance(value, Mapping) and all(isinstance(other, Mapping) for other in values):
            shared[name] = shared_config([value, *values])
        elif all(other == value for other in values):
            shared[name] = value
    return shared


class Tracker:
    """Sends rows, tables and figures to W&B. `mode` auto is wandb_mode(); disabled switches tracking off."""

    def __init__(
        self, project: str = "lantern", mode: str = "auto", tags: str | Sequence[str] = (), entity: str | None = None
    ) -> None:  # fmt: skip
        if mode not in MODES:
            raise LanternError(f"tracking.mode={mode} is unknown; give one of {', '.join(MODES)}")
        self.project, self.entity, self.mode = project, entity, mode
        self.tags = [tags] if isinstance(tags, str) else list(tags)

    def point(
        self, row: Row, config: Mapping[str, object], folder: Path, group: Group, figures: Path | None = None
    ) -> None:  # fmt: skip
        """One run for a setting: flat summary numbers. figures: a folder whose pictures are of this setting."""
        checkpoint = (config.get("drafter") or {}).get("checkpoint")

        def fill(run: "wandb.Run") -> None:
            if figures is not None:
                log_figures(run, figures)
            run.summary.update(scalars(row))
            if checkpoint and row.get("drafter_hash"):
                name_input(run, checkpoint, "drafter", str(row["model"]))

        settings = {"job_type": "evaluate", "name": f"{run_name(row)} {group.folder.name}"}
        settings |= {"config": dict(config), "dir": folder}
        self._send(settings, group, setting_id(row), [row], fill)

    def summary(
        self, rows: Sequence[Row], best: Choice | None, config: Mapping[str, object], folder: Path, group: Group
    ) -> None:  # fmt: skip
        """One run for a whole sweep: the merged table, its figures, and the numbers of the best under the budget."""

        def fill(run: "wandb.Run") -> None:
            import wandb

            log_figures(run, folder)
            lines = [scalars(row) for row in rows]
            keys = list(dict.fromkeys(key for line in lines for key in line))
            run.log({"results": wandb.Table(keys, [[line.get(key) for key in keys] for line in lines])})
            run.summary.update({"points": len(rows)})
            if best is not None:
                named = {"name": run_name(best.row), "certain": best.is_certain, "candidates": best.candidates}
                values = scalars(best.corrected) | named
                run.summary.update({f"best/{key}": value for key, value in values.items()})

        settings = {"job_type": "summary", "name": f"{group.name}/summary", "config": dict(config), "dir": folder}
        self._send(settings, group, "summary", rows, fill)

    def _send(self, settings: dict, group: Group, what: str, rows: Sequence[Row], fill: Callable) -> None:
        mode = wandb_mode() if self.mode == "auto" else self.mode
        if mode == "disabled":
            return

        def send() -> None:
            import wandb

            quiet = quiet_settings(mode)
            tags = clean_tags([*self.tags, *(row[key] for row in rows for key in TAGGED if row.get(key))])
            identity = {"project": self.project, "entity": self.entity, "group": group.name, "tags": tags}
            identity |= {"id": group.run_id(what), "resume": "allow", "reinit": "finish_previous"}
            # W&B's service, which an earlier program may have started, takes a relative folder for one in its own
            identity |= {"dir": settings["dir"].absolute()}
            run = wandb.init(mode=mode, settings=quiet, **settings | identity)
            try:
                fill(run)
            finally:
                wandb.finish()

        Guard(f"every result is in {settings['dir']}")(send)


def quiet_settings(mode: str) -> "wandb.Settings":
    """Of runs that say nothing and that no server makes wait for long."""
    import wandb

    patience = {} if mode == "offline" else {"init_timeout": INIT_TIMEOUT_S}
    return wandb.Settings(silent=True, console="off", finish_timeout=FINISH_TIMEOUT_S, **patience)


def scalars(row: Mapping[str, object]) -> dict[str, object]:
    """What is no scalar is left out, also None: W&B's panels and filters read only these."""
    return {key: value for key, value in row.items() if isinstance(value, str | int | float)}


def log_figures(run: "wandb.Run", folder: Path) -> None:
    """The pictures in a folder, such as the grid of the same prompts across methods."""
    import wandb

    if figures := {path.stem: wandb.Image(str(path)) for path in folder.glob("*.png")}:
        run.log(figures)


def weights_artifact(folder: Path, kind: str, model: str) -> "wandb.Artifact":
    """Weights and their configuration. The drafters of a model are one collection; equal files are one version."""
    import wandb

    taken = re.sub(r"[^\w.-]+", "-", f"{kind}-{model}", flags=re.ASCII)
    artifact = wandb.Artifact(taken, kind, metadata={"hash": weights_hash(folder)})
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        artifact.add_file(str(path), path.name, policy="immutable", skip_cache=True)  # no copy of gigabytes
    return artifact


def name_input(run: "wandb.Run", checkpoint: str | Path, kind: str, model: str) -> None:
    """Tells W&B which weights a run has read; an offline one takes no inputs and logs them. Those of the Hub stay."""
    if str(checkpoint).startswith(ARTIFACT):
        if not run.offline:
            run.use_artifact(str(checkpoint).removeprefix(ARTIFACT))
    elif Path(checkpoint).is_dir():
        artifact = weights_artifact(Path(checkpoint), kind, model)
        (run.log_artifact if run.offline else run.use_artifact)(artifact, aliases=[artifact.metadata["hash"]])
