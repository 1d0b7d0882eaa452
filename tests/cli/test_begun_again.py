"""A run folder in which another run was begun, and was killed or failed."""

import pytest
from support.configs import composed

from lantern.cli import run_setting as module
from lantern.cli.run_setting import run_setting
from lantern.evaluation.rows import Row, read_summary
from lantern.tuning.auto import CHOICE, AutoTree

SMALL = [
    "dtype=float64", "device=cpu", "tracking.mode=disabled", "prompts=demo", "metrics=[]", "speed.num_prompts=1",
    "speed.max_retimed=0", "quality.num_images=0", "output_tv.num_positions=0",
]  # fmt: skip


@pytest.fixture
def measure(weights, tmp_path, monkeypatch):
    def run(*settings: str, fails: str = "") -> list[Row]:  # fails: what is killed
        cfg = composed("evaluate", f"paths.weights={weights}", *SMALL, *settings)
        with monkeypatch.context() as patched:
            if fails:
                patched.setattr(module, fails, killed)
                with pytest.raises(KeyboardInterrupt):
                    run_setting(cfg, "llamagen", tmp_path, None)
                return []
            return run_setting(cfg, "llamagen", tmp_path, None, overrides=settings)

    return run


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_run_whose_folder_another_one_has_begun_to_fill_is_not_finished(measure, tmp_path):
    """Catches the rows of another setting shown as those asked for."""
    assert measure("acceptance=lantern_pp", "acceptance.lam=2")[-1]["lam"] == 2
    measure("acceptance=lantern_pp", "acceptance.lam=20", fails="publish")
    assert read_summary(tmp_path)[-1]["lam"] == 20
    assert measure("acceptance=lantern_pp", "acceptance.lam=2")[-1]["lam"] == 2
    assert read_summary(tmp_path)[-1]["lam"] == 2


@pytest.mark.parametrize(("changed", "searches"), [
    (["speed.max_retimed=1", "output_tv.num_positions=1"], 1), (["acceptance=lantern_pp"], 2),
    (("device_name", "another GPU"), 2), (("num_threads", 7), 2),
])  # fmt: skip
def test_a_tree_that_was_found_is_kept_for_other_sizes_and_metrics(changed, searches, measure, tmp_path, monkeypatch):
    """Catches a second search, of which another shape may come, a tree for 32 images that then decodes 3, and the tree
    of one GPU, or of eight threads, timed on another as the fastest there."""
    searched = []
    monkeypatch.setattr(AutoTree, "_search", lambda self, _: searched.append(self.batch_size))
    sizes = ["speed.num_prompts=0", "quality.num_images=3", "batch_size=32"]
    measure("tree=auto", "acceptance=exact", *sizes)
    if isinstance(changed, tuple):
        move_elsewhere(monkeypatch, *changed)
        changed = ["output_tv.num_positions=1"]
    measure("tree=auto", "acceptance=exact", *sizes, *changed)
    assert searched == [3] * searches  # as many as are decoded at once
    assert (tmp_path / CHOICE).is_file()


@pytest.mark.parametrize("elsewhere", [None, ("device_name", "another GPU"), ("num_threads", 7)])
def test_a_finished_folder_says_where_it_was_measured_if_on_another_machine(elsewhere, measure, monkeypatch, capsys):
    """Catches another machine's milliseconds read as this one's."""
    measure("speed.num_prompts=0", "quality.num_images=1")
    capsys.readouterr()
    if elsewhere:
        move_elsewhere(monkeypatch, *elsewhere)
    measure("speed.num_prompts=0", "quality.num_images=1")
    said = next(line for line in capsys.readouterr().out.splitlines() if "is finished" in line)
    assert ("measured on" in said) == bool(elsewhere)
    assert not elsewhere or str(elsewhere[1]) in said


def move_elsewhere(monkeypatch, what: str, value: object) -> None:
    name = "lantern.runtime.provenance.device_name" if what == "device_name" else "torch.get_num_threads"
    monkeypatch.setattr(name, lambda *_: value)
