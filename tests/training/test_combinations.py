"""Settings that do not go together are one sentence each, before a training begins."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.configs import composed
from support.recipes import feature_lk, shipped
from support.tiny_tasks import drafter_task

from lantern.errors import LanternError
from lantern.sampling import Sampling
from lantern.training.drafter.drafter_task import DrafterTask
from lantern.training.drafter.variants import EagleStudent, ParallelStudent
from lantern.training.run.checks import check_model, check_tables
from lantern.training.run.run_folder import check_overrides


@pytest.mark.parametrize("kind", ["target", "drafter"])
def test_a_task_for_latents_on_a_model_of_codes_names_the_task_for_codes(kind):
    """Catches a traceback about an interpolation."""
    check_model(composed("train", f"task={kind}_continuous"))
    check_model(composed("train", f"task={kind}"))
    said = rf"task={kind}_continuous is for a model of latents, .* or task={kind}$"
    with pytest.raises(LanternError, match=said):
        check_model(composed("train", f"task={kind}_continuous", "model=llamagen"))


@pytest.mark.parametrize("task", ["target", "decoder"])
@pytest.mark.parametrize("model", ["janus_pro", "emu3", "llamagen_c2i_b"])
def test_a_task_on_a_tokenizer_of_ones_own_is_refused_where_the_model_has_none(task, model):
    """Catches a traceback about an interpolation, and one of a constructor."""
    with pytest.raises(LanternError, match=r"tokenizer in this program's layout, .* leave model= out"):
        check_model(composed("train", f"task={task}", f"model={model}"))
    check_model(composed("train", f"task={task}"))


@pytest.mark.parametrize("task", ["critic", "tokenizer", "target", "drafter_continuous"])
def test_a_target_is_sharded_for_drafters_of_codes_alone(task):
    """Catches a traceback once all tables are made."""
    with pytest.raises(LanternError, match=rf"task={task} has none; leave it out"):
        check_model(composed("train", f"task={task}", "callbacks=sharded_target"))
    for kind in ("drafter", "drafter_self"):
        check_model(composed("train", f"task={kind}", "callbacks=sharded_target"))


@pytest.mark.parametrize("given", ["drafter=parallel", "distil.depth=3", "drafter/training@distil=parallel"])
def test_what_the_task_for_latents_does_not_take_is_named(given):
    """Catches an EAGLE drafter of two passes that was asked to be another."""
    with pytest.raises(LanternError, match=rf"^{re.escape(given)} is for drafters of codes, .* task\.depth="):
        check_overrides(["task=drafter_continuous", given], "drafter_continuous")
    check_overrides([given], "drafter")
    check_overrides(["drafter=eagle", "task.depth=3", "seed=1"], "drafter_continuous")


def test_captions_and_features_on_disk_are_not_both_read():
    """Catches features that are computed at each step though the command stores them."""
    with pytest.raises(LanternError, match=r"\+captions=disk .*features=on_the_fly"):
        check_tables(composed("train", "+captions=disk"))
    for given in (["+captions=disk", "features=on_the_fly"], ["features=disk"], ["task=critic"]):
        check_tables(composed("train", *given))


def test_a_parallel_drafter_starts_from_a_drafter_of_features_and_of_its_width_alone(target, tmp_path):
    """Catches a map of layers that is dropped without a word, and an error about the shapes of tensors."""
    drafter_task(target, recipe=shipped("layered")).export(tmp_path / "layered")
    drafter_task(target, student=EagleStudent(2)).export(tmp_path / "wide")
    for name, said in (
        ("layered", r"reads the target's layers \[0, 1, 1\], drafter=parallel its features alone; give"),
        ("wide", r"has a feed-forward part of width \d+, drafter=parallel one of \d+; give"),
    ):
        with pytest.raises(LanternError, match=rf"^task\.start_from={re.escape(str(tmp_path))}/{name} {said}"):
            ParallelStudent(levels=3).load(str(tmp_path / name), target)


def parallel_task(target, validation_depth: int, unroll_from: float = 0.0) -> DrafterTask:
    recipe, rates = replace(feature_lk(depth=3), unroll_from=unroll_from), {"lr": 0.1, "muon_lr": 0.1}
    student = ParallelStudent(levels=3)
    return DrafterTask(target, Sampling(), recipe, **rates, weight_decay=0, validation_depth=validation_depth, seed=0,
                       student=student)  # fmt: skip


def test_a_validation_deeper_than_the_levels_of_a_parallel_drafter_is_refused(target):
    """Catches an IndexError at the first validation."""
    parallel_task(target, validation_depth=2)
    with pytest.raises(LanternError, match=r"distil\.validation_depth=4: .* 3 levels; .* distil\.student\.levels=4"):
        parallel_task(target, validation_depth=4)


def test_levels_that_get_no_gradient_at_first_are_refused_on_several_processes(target):
    """Catches DDP's error about parameters that were not used, after the tables are made."""
    task = parallel_task(target, validation_depth=3, unroll_from=0.5)
    task._trainer = SimpleNamespace(world_size=1)
    task.setup("fit")
    task._trainer.world_size = 2
    with pytest.raises(LanternError, match=r"recipe\.unroll_from=0\.5 .* 2 processes .* recipe\.unroll_from=0"):
        task.setup("fit")
