"""The figure that a command returns to a sweeper that optimises, such as Optuna's."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra.experimental.callback import Callback
from support.commands import run_script, trainings_here
from support.tiny_weights import write_tiny_weights

from lantern.cli.settings import figure_of
from lantern.errors import LanternError
from tools.miniature import write_captioned_scenes


class Returned(Callback):
    """Prints what a job returns."""

    def on_job_end(self, config, job_return, **_):
        print("returned", job_return.return_value)


@pytest.fixture
def returned(monkeypatch, capsys) -> Iterator[Callable[..., list[str]]]:
    monkeypatch.setenv("WANDB_MODE", "disabled")

    def returned(program: str, folder: Path, *settings: str) -> list[str]:
        seen = f"+hydra.callbacks.seen._target_={__name__}.Returned"
        monkeypatch.chdir(folder)
        run_script(monkeypatch, program, *settings, f"hydra.run.dir={folder / 'run'}", seen)
        return [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines() if line[:9] == "returned "]

    with trainings_here(monkeypatch):
        yield returned


def test_a_figure_is_named_or_the_known_ones_are():
    row = {"speedup": 2, "lossless": True, "tree": "static", "frechet": None}
    assert figure_of(row, None) is None
    assert figure_of(row, "speedup") == 2.0
    for name in ("tree", "frechet", "lossless", "none"):
        with pytest.raises(LanternError, match=f"optimized_metric={name} is no figure of this run; give one of speed"):
            figure_of(row, name)
    with pytest.raises(LanternError, match=r"; did you mean speedup\? Else give one of speedup"):
        figure_of(row, "speedupp")


def test_an_evaluation_and_a_training_return_the_figure_that_is_asked_for(returned, tmp_path):
    """Also where the run has been finished before, and of a lossy setting beyond its budget how far."""
    weights = f"paths.weights={write_tiny_weights(tmp_path / 'weights')}"
    few = ("speed.num_prompts=1", "quality.num_images=0", "output_tv.num_positions=0", "drafter=jacobi", "device=cpu")
    settings = (weights, *few, "acceptance=lantern_pp", "optimized_metric=tokens_per_step")
    limit = "+budget.most.target_forwards=10"
    (tmp_path / "evaluated").mkdir()
    runs = (settings, settings, (*settings, limit), (*settings, limit, "+hydra.sweeper.direction=minimize"))
    (first,), (again,), (beyond,), (least,) = (
        returned("evaluate.py", tmp_path / "evaluated", *given) for given in runs
    )
    assert float(first) > 1
    assert again == first
    assert float(beyond) == pytest.approx(10 - 255 / float(first))
    assert least == "inf"
    write_captioned_scenes(tmp_path / "images", 16)
    settings = (
        weights, "data=imagefolder", f"data.folder={tmp_path / 'images'}", f"paths.cache_dir={tmp_path / 'cache'}",
        "trainer.max_steps=2", "trainer.val_check_interval=2", "trainer.max_time=null", "batches.batch_size=4",
        "batches.splits.validation.num_images=2", "batches.validation_batch_size=2", "trainer.accelerator=cpu",
        "logger.wandb=null", "optimized_metric=val/alpha_1",
    )  # fmt: skip
    (tmp_path / "trained").mkdir()
    (first,), (again,) = (returned("train.py", tmp_path / "trained", *settings) for _ in range(2))
    assert 0 < float(first) < 1
    assert again == first
