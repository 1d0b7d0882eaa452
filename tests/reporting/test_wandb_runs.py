"""Content of W&B runs, read back from offline runs: no test needs a server or a key."""

from pathlib import Path

import pytest
import wandb
from support.evaluations import evaluation
from support.fake_pipeline import FakePipeline
from support.made_sweep import PROMPTS, made_sweep
from support.offline_runs import OfflineRun, read_runs

from lantern.evaluation.rows import setting_id
from lantern.evaluation.run_folder import EvaluationFolder
from lantern.models.checkpoints import save_weights, weights_hash
from lantern.reporting.merge import begin_sweep
from lantern.reporting.publish import publish, report_sweep
from lantern.reporting.ranking import Budget
from lantern.reporting.wandb_runs import INIT_TIMEOUT_S, Tracker, group_of, name_input, tell_offline, wandb_mode
from lantern.runtime.provenance import write_provenance

BUDGET = Budget({"frechet": 0.25})
ROW = {"model": "m", "drafter": "none", "tree": "none"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("drafter")
    save_weights(folder, {}, {"dim": 8})
    return folder


@pytest.fixture(scope="module")
def tracked(tmp_path_factory, weights) -> dict[str, OfflineRun]:
    """The runs of one evaluated setting and of a sweep's end, by name; without a key at hand."""
    folder = tmp_path_factory.mktemp("tracked")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("WANDB_API_KEY", "WANDB_MODE"):
            patch.delenv(name, raising=False)
        patch.setenv("NETRC", str(folder / "none"))
        patch.setenv("WANDB_DATA_DIR", str(folder / "staged"))
        patch.setenv("WANDB_CACHE_DIR", str(folder / "cache"))
        begin_sweep(folder)
        made_sweep(folder)
        tracker, point = Tracker(tags="mine"), folder / "0"
        measured = evaluation(point, PROMPTS, 2, 3, 4, sweep=folder).run(FakePipeline())
        measured[1].row.update({"drafter_hash": "abc"} | {f"measure_{i}": i for i in range(120)})  # rows are long
        config = {"seed": 0, "drafter": {"checkpoint": str(weights)}, "sweep": {"name": "delta"}}
        for number, delta in enumerate((0.01, 0.1, 0.4)):
            own = config | {"acceptance": {"_target_": "own.Rule", "delta": delta}}
            write_provenance(folder / str(number), own, {})
        publish(EvaluationFolder(point, folder), measured, config, tracker, BUDGET)
        report_sweep(folder, "delta", tracker, BUDGET)
    runs = [*read_runs(point), *read_runs(folder)]
    return {run.run.display_name.removesuffix(f" {folder.name}"): run for run in runs} | {"folder": folder}


def test_runs_of_a_sweep_share_a_group_and_have_a_job_type(tracked):
    folder = tracked["folder"]
    names = "fake/lantern/static/k100-d0.03", "fake/ar", f"delta-{folder.name}/summary"
    point, plain, summary = map(tracked.get, names)
    assert {run.run.run_group for run in (point, plain, summary)} == {f"delta-{folder.name}"}
    assert [run.run.job_type for run in (point, plain, summary)] == ["evaluate", "evaluate", "summary"]
    assert list(point.run.tags) == ["mine", "fake", "eagle", "static", "ratio", "lantern"]
    assert {run.exit_code for run in (point, plain, summary)} == {0}


def test_every_run_has_the_configuration_of_what_it_shows(tracked):
    """Catches runs of plain decoding with the drafter and rule of a method beside them, or with no configuration."""
    folder = tracked["folder"]
    plain, summary = tracked["fake/ar"].config, tracked[f"delta-{folder.name}/summary"].config
    assert plain["seed"] == 0
    assert not {"drafter", "acceptance"} & plain.keys()
    assert (summary["seed"], summary["acceptance"]) == (0, {"_target_": "own.Rule"})  # points differ in its δ
    assert "checkpoint" in tracked["fake/lantern/static/k100-d0.03"].config["drafter"]


def test_a_sweep_logs_its_figures_and_its_table(tracked):
    """Catches a sweep's figures sent a second time, with the run of its plain decoding."""
    logged = {name: {key for line in run.history for key in line} for name, run in tracked.items() if name != "folder"}
    assert {"pareto/path", "grid/path", "results/path"} <= logged.pop(f"delta-{tracked['folder'].name}/summary")
    assert not any("/path" in key for keys in logged.values() for key in keys)


def test_the_summary_run_names_the_best_setting_under_the_budget(tracked):
    summary = tracked[f"delta-{tracked['folder'].name}/summary"].summary
    assert summary["best/name"] == "fake/lantern/static/k100-d0.1"  # 6 of 5 is within 25 %, 9 is not
    assert summary["best/speedup"] == pytest.approx(2.0)
    assert (summary["best/within_budget"], summary["best/certain"], summary["points"]) == ("open", False, 4)


def test_the_drafter_that_was_measured_is_an_artifact(tracked, weights):
    (drafter,) = tracked["fake/lantern/static/k100-d0.03"].artifacts
    assert (drafter.name, {*drafter.aliases}) == ("drafter-fake", {"latest", weights_hash(weights)})


class Online:
    """A run that a server would receive: what it is told to use and to log."""

    def __init__(self, offline: bool = False) -> None:
        self.offline, self.used, self.logged = offline, [], []

    def use_artifact(self, artifact, aliases=()):
        self.used.append((getattr(artifact, "name", artifact), *aliases))

    def log_artifact(self, artifact, aliases=()):
        self.logged.append((artifact.name, *aliases))


def test_the_drafter_that_a_run_reads_is_its_input(weights, tmp_path):
    """Catches lineage the wrong way round, a collection for each drafter, and an input that ends an offline run."""
    save_weights(tmp_path, {}, {"dim": 8})
    online, offline = Online(), Online(offline=True)
    for run in (online, offline):
        for checkpoint in (str(weights), tmp_path, "wandb:team/lantern/drafter-m:v3", "somebody/on-the-hub"):
            name_input(run, checkpoint, "drafter", "m")
    versions = [("drafter-m", weights_hash(place)) for place in (weights, tmp_path)]
    assert (online.used, online.logged) == ([*versions, ("team/lantern/drafter-m:v3",)], [])
    assert (offline.used, offline.logged) == ([], versions)


def test_a_run_keeps_its_id_when_its_sweep_is_run_again_and_other_folders_have_others(tmp_path):
    group = group_of("delta", tmp_path / "a")
    assert group.name == "delta-a"
    assert group == group_of("delta", tmp_path / "a")
    assert group.run_id(setting_id(ROW)) == group_of("delta", tmp_path / "a").run_id(setting_id(ROW))
    assert group.run_id("x") not in (group.run_id("y"), group_of("delta", tmp_path / "b").run_id("x"))
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["wandb.folder_id"]  # nothing temporary is left


@pytest.mark.parametrize(("mode", "patience"), [("offline", wandb.Settings().init_timeout), ("online", INIT_TIMEOUT_S)])
def test_a_failing_tracker_is_a_warning_and_offline_no_server_delays(mode, patience, tmp_path, monkeypatch, caplog):
    """Catches an offline run that a busy machine loses, because no server may delay a sweep, and a folder that W&B's
    service, which an earlier program may have started elsewhere, looks for in its own working folder."""

    def broken(settings, dir, **_):
        raise OSError(f"after {float(settings.init_timeout)} s in {dir}")

    monkeypatch.setattr(wandb, "init", broken)
    monkeypatch.chdir(tmp_path)
    Tracker(mode=mode).point(ROW, {}, Path("run"), group_of("g", tmp_path))
    assert f"after {float(patience)} s in {tmp_path}/run" in caplog.text


def test_what_was_kept_offline_is_sent_by_the_command_that_is_printed(tmp_path, capsys):
    """Catches parts of a run that was killed and resumed which are left behind, and runs that were sent before."""
    for place in ("wandb/offline-run-1-a", "0/wandb/offline-run-2-a", "1/wandb/offline-run-3-b", "2/wandb/run-4-a"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "1/wandb/offline-run-3-b/run-b.wandb.synced").touch()
    tell_offline([tmp_path])
    told = capsys.readouterr().out.split("wandb sync ")[1].split()
    assert told == [f"{tmp_path}/0/wandb", f"{tmp_path}/wandb"]
    tell_offline([tmp_path], "c")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("names", "expected"), [
    ([], "offline"), (["WANDB_API_KEY"], "online"), (["NETRC"], "online"),
    (["WANDB_API_KEY", "WANDB_MODE"], "disabled"),
])  # fmt: skip
def test_tracking_is_online_only_with_a_key_at_hand(tmp_path, monkeypatch, names, expected):
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password x\n")
    values = {"WANDB_API_KEY": "k", "WANDB_MODE": "disabled", "NETRC": str(tmp_path / "netrc")}
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in names:
        monkeypatch.setenv(name, values[name])
    assert wandb_mode() == expected
