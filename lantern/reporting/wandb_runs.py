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

from omegaconf import OmegaConf
from torch import Tensor

from lantern.drafters.loading import ARTIFACT
from lantern.errors import LanternError
from lantern.evaluation.rows import Row, fixed_part, run_name, setting_id
from lantern.identity import DECODING, PLAIN_DECODING, digest
from lantern.metrics.profile import Profile
from lantern.models.checkpoints import weights_hash
from lantern.reporting.ranking import Choice
from lantern.runtime.files import read_object, replace_text
from lantern.runtime.home import CONFIG_FOLDER

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)
INIT_TIMEOUT_S = 30  # an unreachable server must not delay a sweep
FINISH_TIMEOUT_S = 600  # for uploads, at the end
MAX_TAG = 64  # letters, of which W&B takes no more
Returned = TypeVar("Returned")
FOLDER_ID_FILE = "wandb.folder_id"
MAX_IMAGES = 32  # in a table; all images are in the run folder
RESULT_FILES = ("*.jsonl", "*.json", "*.csv", "*.png", "report.html")
PLAIN_PARTS = {"drafter": "drafter/none.yaml", "acceptance": "acceptance/exact.yaml"}
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


def run_tags(row: Mapping[str, object]) -> list[str]:
    """Tags to filter runs by: model, drafter, tree, verification and rule."""
    keys = ("model", "drafter", "tree", "verification", "acceptance")
    return clean_tags(row[key] for key in keys if row.get(key))


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
    """A folder's random id, from which those of its W&B runs follow, made once; no secret. Of processes that start
    together, the last one's is kept."""
    if not (folder / FOLDER_ID_FILE).exists():
        replace_text(folder / FOLDER_ID_FILE, secrets.token_hex(8))
    return (folder / FOLDER_ID_FILE).read_text()


class Point(NamedTuple):
    row: Row
    profile: Profile | None = None
    records: Sequence[Row] = ()  # a line an image
    prompts: Sequence[str] = ()
    columns: Mapping[str, Tensor] = {}  # label -> images [N, 3, H, W] in [0, 1], of the same prompts


def plain_config(config: Mapping[str, object]) -> dict[str, object]:
    """The configuration of a run's plain decoding: the same, without the method's parts."""
    kept = {name: value for name, value in config.items() if name not in DECODING or name in PLAIN_DECODING}
    none = {name: OmegaConf.to_container(OmegaConf.load(CONFIG_FOLDER / file)) for name, file in PLAIN_PARTS.items()}
    return kept | none if config else {}


def shared_config(configs: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """The settings that all configurations have in common; a group that differs in one of its settings keeps the
    others."""
    first, *others = configs or [{}]
    shared: dict[str, object] = {}
    for name, value in first.items():
        values = [other.get(name) for other in others]
        if isinstance(value, Mapping) and all(isinstance(other, Mapping) for other in values):
            shared[name] = shared_config([value, *values])
        elif all(other == value for other in values):
            shared[name] = value
    return shared


class Curve(NamedTuple):
    """Points that share their keys; `axis` is one of them."""

    name: str
    axis: str
    points: list[dict[str, float]]


class Tracker:
    """Sends rows, tables and figures to W&B. `mode` auto is wandb_mode(); disabled switches tracking off."""

    def __init__(
        self, project: str = "lantern", mode: str = "auto", tags: str | Sequence[str] = (), entity: str | None = None
    ) -> None:  # fmt: skip
        if mode not in MODES:
            raise LanternError(f"tracking.mode={mode} is unknown; give one of {', '.join(MODES)}")
        self.project, self.entity, self.mode = project, entity, mode
        self.tags = [tags] if isinstance(tags, str) else list(tags)

    def point(self, point: Point, config: Mapping[str, object], folder: Path, group: Group) -> None:
        """One run for a setting: flat summary numbers, curves, a table with a prompt a line and an image a column."""
        checkpoint = (config.get("drafter") or {}).get("checkpoint")

        def fill(run: "wandb.Run") -> None:
            for curve in curves_of(point.profile, point.records):
                _log_curve(run, curve)
            if point.columns:
                run.log({"images": image_table(point.prompts, point.columns)})
            run.summary.update(flatten(point.row))
            described = fixed_part(point.row)  # W&B takes 100 keys at most; the rest is in the files
            run.log_artifact(results_artifact(f"results-{run.id}", folder, described))
            if checkpoint and point.row.get("drafter_hash"):
                name_input(run, checkpoint, "drafter", str(point.row["model"]))

        settings = {"job_type": "evaluate", "name": run_name(point.row), "config": dict(config), "dir": folder}
        self._send(settings, group, setting_id(point.row), [*self.tags, *run_tags(point.row)], fill)

    def summary(
        self, rows: Sequence[Row], best: Choice | None, figures: Sequence[Path], images: Point,
        config: Mapping[str, object], folder: Path, group: Group,
    ) -> None:  # fmt: skip
        """One run for a whole sweep: the merged table, figures, same-prompt images across methods, and the best setting
        under the budget, number by number."""

        def fill(run: "wandb.Run") -> None:
            import wandb

            logged = {"results": row_table(rows)} | {path.stem: wandb.Image(str(path)) for path in figures}
            if images.columns:
                logged["images"] = image_table(images.prompts, images.columns)
            run.log(logged)
            run.summary.update({"points": len(rows)})
            if best is not None:
                named = {"name": run_name(best.row), "certain": best.is_certain, "candidates": best.candidates}
                values = flatten(best.corrected) | named
                run.summary.update({f"best/{key}": value for key, value in values.items()})
            run.log_artifact(results_artifact(f"sweep-{folder_id(group.folder)}", folder, {"points": len(rows)}))

        settings = {"job_type": "summary", "name": f"{group.name}/summary", "config": dict(config), "dir": folder}
        tags = list(dict.fromkeys(tag for row in rows for tag in run_tags(row)))
        self._send(settings, group, "summary", [*self.tags, *tags], fill)

    def _send(self, settings: dict, group: Group, what: str, tags: list[str], fill: Callable) -> None:
        mode = wandb_mode() if self.mode == "auto" else self.mode
        if mode == "disabled":
            return

        def send() -> None:
            import wandb

            quiet = quiet_settings()
            identity = {"project": self.project, "entity": self.entity, "group": group.name, "tags": clean_tags(tags)}
            identity |= {"id": group.run_id(what), "resume": "allow", "reinit": "finish_previous"}
            run = wandb.init(mode=mode, settings=quiet, **identity, **settings)
            try:
                fill(run)
            finally:
                wandb.finish()

        Guard(f"every result is in {settings['dir']}")(send)


def quiet_settings() -> "wandb.Settings":
    """Of runs that say nothing and that no server makes wait for long."""
    import wandb

    return wandb.Settings(silent=True, console="off", init_timeout=INIT_TIMEOUT_S, finish_timeout=FINISH_TIMEOUT_S)


def _log_curve(run: "wandb.Run", curve: Curve) -> None:
    """Values over an axis of their own, which the run's summary leaves out."""
    run.define_metric(f"{curve.name}/{curve.axis}", hidden=True, summary="none")
    run.define_metric(f"{curve.name}/*", step_metric=f"{curve.name}/{curve.axis}", summary="none")
    for point in curve.points:
        run.log({f"{curve.name}/{key}": value for key, value in point.items()})


def flatten(row: Mapping[str, object], name: str = "") -> dict[str, object]:
    """The scalars of a row, nested ones by their path, None left out: W&B's panels and filters read only these."""
    scalars: dict[str, object] = {}
    for key, value in row.items():
        path = f"{name}/{key}" if name else str(key)
        if isinstance(value, Mapping):
            scalars |= flatten(value, path)
        elif isinstance(value, str | int | float):
            scalars[path] = value
    return scalars


def curves_of(profile: Profile | None, records: Sequence[Row]) -> list[Curve]:
    """Latency by prompt, then the profile's shares; a curve without points is left out."""
    timed = [record for record in records if record.get("latency_s") is not None]
    points = [{"prompt": i, "latency_s": r["latency_s"], "steps": r["steps"]} for i, r in enumerate(timed)]
    curves = [Curve("timing", "prompt", points)]
    if profile is not None:
        shares = enumerate(count / profile["rounds"] for count in profile["committed"])
        curves.append(Curve("committed", "tokens", [{"tokens": n, "share_of_rounds": s} for n, s in shares if n]))
        for name, axis, first in (("depth", "level", 1), ("rank", "rank", 1), ("entropy", "bits", 0)):
            curves.append(Curve(f"acceptance_by_{name}", axis, _shares(profile[name], axis, first)))
    return [curve for curve in curves if curve.points]


def _shares(tally: Mapping[str, Sequence[int]], axis: str, first: int) -> list[dict[str, float]]:
    counts = zip(tally["judged"], tally["accepted"], strict=True)
    return [
        {axis: i + first, "accepted": accepted / judged, "judged": judged}
        for i, (judged, accepted) in enumerate(counts)
        if judged
    ]


def image_table(prompts: Sequence[str], columns: Mapping[str, Tensor]) -> "wandb.Table":
    """The same prompts down, the settings across; columns [N, 3, H, W] in [0, 1]."""
    import wandb

    shown = range(min(MAX_IMAGES, len(prompts), *(len(images) for images in columns.values())))
    pixels = [(images.permute(0, 2, 3, 1) * 255).round().byte().cpu().numpy() for images in columns.values()]
    lines = [[prompts[i], *(wandb.Image(images[i]) for images in pixels)] for i in shown]
    return wandb.Table(columns=["prompt", *columns], data=lines)


def row_table(rows: Sequence[Row]) -> "wandb.Table":
    """All rows, with a column for every scalar of any of them."""
    import wandb

    lines = [flatten(row) for row in rows]
    keys = list(dict.fromkeys(key for line in lines for key in line))
    return wandb.Table(columns=keys, data=[[line.get(key) for key in keys] for line in lines])


def results_artifact(name: str, folder: Path, metadata: Mapping[str, object]) -> "wandb.Artifact":
    """The result files of a run folder, images left out."""
    import wandb

    artifact = wandb.Artifact(name, "results", metadata=flatten(metadata))
    for path in sorted({path for pattern in RESULT_FILES for path in folder.glob(pattern)}):
        artifact.add_file(str(path), path.name)
    return artifact


def weights_artifact(folder: Path, kind: str, model: str) -> "wandb.Artifact":
    """Weights and their configuration. A drafter, and its kind, of a model is one collection: trainings add versions to
    it, equal files are one version."""
    import wandb

    is_parallel = "levels" in read_object(folder / "config.json")
    name = "-".join([kind, model, *(["parallel"] if is_parallel else [])])
    taken = re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII)
    artifact = wandb.Artifact(taken, kind, metadata={"hash": weights_hash(folder)})
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        artifact.add_file(str(path), path.name, policy="immutable", skip_cache=True)  # no copy of gigabytes
    return artifact


def name_input(run: "wandb.Run", checkpoint: str | Path, kind: str, model: str) -> None:
    """Tells W&B which weights a run has read. Offline it takes no inputs, and the files are logged as an output; what
    is on the Hub stays there."""
    if str(checkpoint).startswith(ARTIFACT):
        if not run.offline:
            run.use_artifact(str(checkpoint).removeprefix(ARTIFACT))
    elif Path(checkpoint).is_dir():
        artifact = weights_artifact(Path(checkpoint), kind, model)
        (run.log_artifact if run.offline else run.use_artifact)(artifact, aliases=[artifact.metadata["hash"]])
