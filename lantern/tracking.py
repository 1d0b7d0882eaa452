"""Weights & Biases for evaluations: one run a setting, grouped by sweep. It never asks for a key, and a failure of it
is a warning: every result is on disk before it is tracked here."""

import logging
import netrc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlparse

from torch import Tensor

from lantern.results import Row, config_keys

log = logging.getLogger(__name__)
MAX_IMAGES = 32  # in a table; all images are in the run folder
INIT_TIMEOUT_S = 30  # an unreachable server must not hold a sweep up


def wandb_mode() -> str:
    """WANDB_MODE if set, else "online" where a key is at hand (environment or netrc), else "offline"."""
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


def run_name(row: Mapping[str, object]) -> str:
    """model/acceptance/tree/settings, such as "llamagen/lantern/static/k100-d0.03"; "llamagen/ar" for the baseline."""
    if row.get("drafter") == "none":
        return f"{row['model']}/ar"
    short = {"k": "k", "delta": "d", "lam": "l"} | {key: key.split(".")[-1] for key in config_keys([row])}
    values = [f"{name}{row[key]:g}" for key, name in short.items() if row.get(key) is not None]
    return "/".join(
        [str(row["model"]), str(row["acceptance"]), str(row["tree"]), *(["-".join(values)] if values else [])]
    )


def group_name(sweep: str | None, folder: str | Path) -> str:
    """What groups the runs of one sweep, or of one evaluation, in W&B: its name and its folder's."""
    return f"{sweep or 'evaluate'}-{Path(folder).name}"


class Tracker:
    """Sends rows, tables and figures to W&B. `mode` auto is wandb_mode(); disabled switches tracking off."""

    def __init__(self, project: str = "lantern", mode: str = "auto", tags: Sequence[str] = ()) -> None:
        self.project, self.mode, self.tags = project, mode, list(tags)

    def point(
        self, row: Row, config: Mapping[str, object], folder: Path, group: str,
        prompts: Sequence[str] = (), columns: Mapping[str, Tensor] | None = None,
    ) -> None:  # fmt: skip
        """One run for a setting: flat summary numbers, and a table with a prompt a line, an image [3, H, W] in [0, 1]
        a column."""
        self._send(
            {"job_type": "evaluate", "group": group, "name": run_name(row), "config": dict(config), "dir": folder},
            summary={key: value for key, value in row.items() if value is not None},
            tables={"images": _image_table(prompts, columns)} if columns else {},
        )

    def summary(self, rows: Sequence[Row], figures: Sequence[Path], folder: Path, group: str) -> None:
        """One run for a whole sweep: the merged table and its figures."""
        keys = list(rows[0])
        table = ("table", keys, [[row.get(key) for key in keys] for row in rows])
        self._send(
            {"job_type": "summary", "group": group, "name": f"{group}/summary", "dir": folder},
            summary={"points": len(rows)}, tables={"results": table}, figures=figures,
        )  # fmt: skip

    def _send(self, settings: dict, summary: dict, tables: dict, figures: Sequence[Path] = ()) -> None:
        mode = wandb_mode() if self.mode == "auto" else self.mode
        if mode == "disabled":
            return
        try:
            import wandb

            quiet = wandb.Settings(silent=True, console="off", init_timeout=INIT_TIMEOUT_S)
            run = wandb.init(
                project=self.project, mode=mode, tags=self.tags, settings=quiet, reinit="finish_previous", **settings
            )
            try:
                run.summary.update(summary)
                content = {name: _to_table(wandb, *table[1:]) for name, table in tables.items()}
                content |= {path.stem: wandb.Image(str(path)) for path in figures}
                if content:
                    run.log(content)
            finally:
                wandb.finish()
        except Exception as error:
            log.warning("Weights & Biases did not take this run (%s); every result is in %s", error, settings["dir"])


def _image_table(prompts: Sequence[str], columns: Mapping[str, Tensor]) -> tuple[str, list[str], list[list[object]]]:
    shown = range(min(MAX_IMAGES, len(prompts), *(len(images) for images in columns.values())))
    return "table", ["prompt", *columns], [[prompts[i], *(images[i] for images in columns.values())] for i in shown]


def _to_table(wandb, names: list[str], lines: list[list[object]]):
    def cell(value: object) -> object:
        if isinstance(value, Tensor):
            return wandb.Image((value.permute(1, 2, 0) * 255).round().byte().cpu().numpy())
        return value

    return wandb.Table(columns=names, data=[[cell(value) for value in line] for line in lines])
