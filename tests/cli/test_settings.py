"""--help prints what a command reads, all of it; what nothing reads is refused."""

import re

import pytest
from omegaconf import OmegaConf
from support.configs import composed, composed_with_hydra
from support.paths import CONF

from lantern.cli.settings import check_added, check_numbers, groups_of, help_page
from lantern.errors import LanternError

COMMANDS = ("evaluate", "train", "export", "score", "contact")
LEFT_OUT = {"export": {"sampling"}}
OF_A_TASK = {"features", "recipe", "select_by"}  # of which no task need choose any


@pytest.mark.parametrize("command", COMMANDS)
def test_the_groups_a_command_reads_are_described_under_the_sign_they_are_given_with(command):
    cfg = composed_with_hydra(command)
    chosen = {name.split("@")[0] for name in cfg.hydra.runtime.choices if "/" not in name}
    chosen |= {"metrics"} & cfg.keys()  # a list, which Hydra does not count
    ours = {name for name in chosen if (CONF / name).is_dir()}
    listed = groups_of(command)
    with_default = {name for name, (sign, _) in listed.items() if not sign}
    assert with_default - OF_A_TASK == ours - LEFT_OUT.get(command, set()) - OF_A_TASK
    assert all((CONF / name).is_dir() for name in listed)
    for name, (sign, about) in listed.items():
        assert f"\n  {sign}{name}: {about}\n" in help_page(command), name


@pytest.mark.parametrize("command", COMMANDS)
def test_own_settings_stand_there_with_their_comments(command):
    page, config = help_page(command), OmegaConf.load(CONF / f"{command}.yaml")
    assert config.hydra.help.template == page  # as the yaml and the resolver spell it
    for name in config:
        assert re.search(rf"^{name}:", page, re.MULTILINE) or name in ("defaults", "hydra"), name


def test_options_are_those_of_the_command():
    assert re.search(r"\n  \+sweep: .*\n      recipe\n", help_page("train"))
    assert "recipe" not in help_page("evaluate")
    assert re.search(r"\n  drafter: .*\n      eagle\n", help_page("train"))


@pytest.mark.parametrize(("command", "added"), [
    ("evaluate", "+speed.num_promts=1"), ("evaluate", "+data=imagefolder"), ("train", "+batch_size=16"),
    ("export", "+sweep=delta"),
])  # fmt: skip
def test_an_added_key_or_group_that_nothing_reads_is_refused(command, added):
    """Catches a mistyped setting behind a plus, which Hydra adds and no run uses, and a group of another command."""
    group = {} if "." in added else {added[1:].split("=")[0]} & {"data", "acceptance", "sweep"}
    with pytest.raises(LanternError, match=re.escape(f"{added} adds a ")):
        check_added(composed(command, "++seed=1"), ["seed=1", added], {"model", "sampling", *group}, command)


@pytest.mark.parametrize(("command", "added"), [
    ("evaluate", ["+method=jacobi", "+tree.length=4", "++speed.num_prompts=4", "+tree@published=eagle2"]),
    ("evaluate", ["+experiment=benchmark", "+study.num_nodes=[1]"]),
    ("train", ["+callbacks.latest.every_n_train_steps=1", "+batches.own=1", "+sweep=recipe", "+trainer.x=1"]),
    ("train", ["task=drafter_self", "+validation_images=8"]),
])  # fmt: skip
def test_what_a_group_a_constructor_or_a_yaml_reads_may_be_added(command, added):
    cfg = composed_with_hydra(command, *[given for given in added if "." not in given])
    check_added(cfg, added, cfg.hydra.runtime.choices, command)
    check_added(cfg, ["+mine=x", "+mine.part.own=1"], ["parts/mine@mine.part"], command)  # of a --config-dir


@pytest.mark.parametrize(("command", "wrong"), [
    ("evaluate", "acceptance.lam=five"), ("evaluate", "acceptance.lam=true"), ("evaluate", "acceptance.k=many"),
    ("evaluate", "sampling.top_p=x"), ("evaluate", "output_tv.num_positions=a"), ("train", "trainer.max_steps=x"),
    ("train", "trainer.max_steps=1.5"), ("train", "batches.batch_size=nan"), ("train", "task.lr=x"),
])  # fmt: skip
def test_what_is_no_number_is_named_where_a_constructor_wants_one(command, wrong):
    """Catches Python's error of a comparison with a text, a truth value taken for 1, and a step and a half."""
    usual = {"evaluate": ["acceptance=lantern_pp"], "train": ["trainer.max_steps=1e3", "trainer.default_root_dir=x"]}
    setting, section = wrong.partition("=")[0], wrong.partition(".")[0]
    check_numbers({section: composed(command, *usual[command])[section]})
    with pytest.raises(LanternError, match=rf"{re.escape(setting)}=\S+ is no (whole )?number"):
        check_numbers({section: composed(command, *usual[command], wrong)[section]})
