"""Weights & Biases runs of evaluations: one run a setting, grouped by sweep. W&B is never asked for a key, and its
failures are warnings: every result is on disk before it is tracked. wandb is imported where a run is sent."""

import logging
import netrc
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlparse

from torch import Tensor

from lantern.errors import LanternError
from lantern.evaluation.rows import Row, fixed_part, run_name, setting_id
from lantern.identity import digest
from lantern.metrics.profile import Profile
from lantern.reporting.quality_budget import Choice

if TYPE_CHECKING:
    import wandb

    from lantern.reporting.wandb_content import Curve

log = logging.getLogger(__name__)
INIT_TIMEOUT_S = 30  # an unreachable server must not delay a sweep
KEY_FILE = "wandb.key"
MODES = ("auto", "online", "offline", "disabled")


def wandb_mode() -> str:
    """WANDB_MODE if set, else "online" with a key in the environment or netrc, else "offline"."""
    chosen = os.environ.get("WANDB_MODE")
    if chosen:
        return chosen
    return "online" if os.environ.get("WANDB_API_KEY") or _has_netrc_entry() else "offline"


def _has_netrc_entry() -> bool:
    path = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(path).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def run_tags(row: Mapping[str, object]) -> list[str]:
    """Tags to filter runs by: model, drafter, tree, verification and rule."""
    keys = ("model", "drafter", "tree", "verification", "acceptance")
    return list(dict.fromkeys(str(row[key])[:64] for key in keys if row.get(key)))


class Group(NamedTuple):
    """The W&B group of a sweep or an evaluation: its name with its folder's, and the folder's key."""

    name: str
    key: str

    def run_id(self, what: str) -> str:
        """The same id for the same setting whenever the sweep runs again in its folder."""
        return digest(f"{self.key}/{what}")


def group_of(sweep: str | None, folder: str | Path) -> Group:
    """The group of a sweep's name and folder; of a single run's without a sweep."""
    return Group(f"{sweep or 'evaluate'}-{Path(folder).name}", folder_key(Path(folder)))


def folder_key(folder: Path) -> str:
    """A folder's random key, made once; processes that start together share the first one's."""
    path = folder / KEY_FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        own = folder / f".{secrets.token_hex(8)}"
        own.write_text(secrets.token_hex(8))
        try:
            os.link(own, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links: of two processes the later one's
            os.replace(own, path)
        finally:
            own.unlink(missing_ok=True)
    return path.read_text()


class Point(NamedTuple):
    """What is tracked of one setting."""

    row: Row
    profile: Profile | None = None
    records: Sequence[Row] = ()  # a line an image
    prompts: Sequence[str] = ()
    columns: Mapping[str, Tensor] = {}  # label -> images [N, 3, H, W] in [0, 1], of the same prompts


class Tracker:
    """Sends rows, tables and figures to W&B. `mode` auto is wandb_mode(); disabled switches tracking off."""

    def __init__(self, project: str = "lantern", mode: str = "auto", tags: str | Sequence[str] = ()) -> None:
        if mode not in MODES:
            raise LanternError(f"tracking.mode={mode} is unknown; give one of {', '.join(MODES)}")
        self.project, self.mode, self.tags = project, mode, [tags] if isinstance(tags, str) else list(tags)

    def point(self, point: Point, config: Mapping[str, object], folder: Path, group: Group) -> None:
        """One run for a setting: flat summary numbers, curves, a table with a prompt a line and an image a column."""
        checkpoint = (config.get("drafter") or {}).get("checkpoint")

        def fill(run: "wandb.Run") -> None:
            from lantern.reporting import wandb_content as content

            for curve in content.curves_of(point.profile, point.records):
                _log_curve(run, curve)
            if (accepted := content.acceptance_map(point.profile)) is not None:
                run.log({"acceptance_map": accepted})
            if point.columns:
                run.log({"images": content.image_table(point.prompts, point.columns)})
            run.summary.update(content.flat(point.row))
            described = fixed_part(point.row)  # W&B takes 100 keys at most; the rest is in the files
            run.log_artifact(content.results_artifact(f"results-{run.id}", folder, described))
            if checkpoint and Path(checkpoint).is_dir() and point.row.get("drafter_hash"):  # else the Hub keeps it
                run.log_artifact(content.weights_artifact(Path(checkpoint), "drafter"))

        settings = {"job_type": "evaluate", "name": run_name(point.row), "config": dict(config), "dir": folder}
        self._send(settings, group, setting_id(point.row), [*self.tags, *run_tags(point.row)], fill)

    def summary(
        self, rows: Sequence[Row], best: Choice | None, figures: Sequence[Path], images: Point | None,
        folder: Path, group: Group,
    ) -> None:  # fmt: skip
        """One run for a whole sweep: the merged table, same-prompt images across methods, the plot of speed against
        quality, and the best setting under the budget, number by number."""

        def fill(run: "wandb.Run") -> None:
            import wandb

            from lantern.reporting import wandb_content as content

            logged = {"results": content.row_table(rows)} | {path.stem: wandb.Image(str(path)) for path in figures}
            if (chart := content.pareto_chart(rows, [run_name(row) for row in rows])) is not None:
                logged["speed_against_quality"] = chart
            if images is not None and images.columns:
                logged["images"] = content.image_table(images.prompts, images.columns)
            run.log(logged)
            run.summary.update({"points": len(rows)})
            if best is not None:
                named = {"name": run_name(best.row), "certain": best.is_certain, "ranked_by": best.ranked_by}
                named["candidates"] = best.candidates
                run.summary.update(
                    {f"best/{key}": value for key, value in (content.flat(best.widened) | named).items()}
                )
            run.log_artifact(content.results_artifact(f"sweep-{group.key}", folder, {"points": len(rows)}))

        settings = {"job_type": "summary", "name": f"{group.name}/summary", "dir": folder}
        tags = list(dict.fromkeys(tag for row in rows for tag in run_tags(row)))
        self._send(settings, group, "summary", [*self.tags, *tags], fill)

    def table(self, rows: Sequence[Row], figures: Sequence[Path], folder: Path, group: Group) -> None:
        """One run with a table, figures and the files of a folder; the first row is its summary."""

        def fill(run: "wandb.Run") -> None:
            import wandb

            from lantern.reporting import wandb_content as content

            run.log({"results": content.row_table(rows)} | {path.stem: wandb.Image(str(path)) for path in figures})
            run.summary.update({f"best/{key}": value for key, value in content.flat(rows[0]).items()})
            run.log_artifact(content.results_artifact(f"sweep-{group.key}", folder, {"points": len(rows)}))

        settings = {"job_type": "summary", "name": f"{group.name}/summary", "dir": folder}
        self._send(settings, group, "summary", self.tags, fill)

    def _send(self, settings: dict, group: Group, what: str, tags: list[str], fill: Callable) -> None:
        mode = wandb_mode() if self.mode == "auto" else self.mode
        if mode == "disabled":
            return
        try:
            import wandb

            quiet = wandb.Settings(silent=True, console="off", init_timeout=INIT_TIMEOUT_S)
            identity = {"project": self.project, "group": group.name, "id": group.run_id(what), "resume": "allow"}
            identity |= {"tags": list(dict.fromkeys(tags)), "reinit": "finish_previous"}
            run = wandb.init(mode=mode, settings=quiet, **identity, **settings)
            try:
                fill(run)
            finally:
                wandb.finish()
        except Exception as error:
            log.warning("Weights & Biases did not take this run (%s); every result is in %s", error, settings["dir"])


def _log_curve(run: "wandb.Run", curve: "Curve") -> None:
    """Values over an axis of their own, which the run's summary leaves out."""
    run.define_metric(f"{curve.name}/{curve.axis}", hidden=True, summary="none")
    run.define_metric(f"{curve.name}/*", step_metric=f"{curve.name}/{curve.axis}", summary="none")
    for point in curve.points:
        run.log({f"{curve.name}/{key}": value for key, value in point.items()})
