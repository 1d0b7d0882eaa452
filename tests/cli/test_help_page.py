"""--help: what a command reads, all of it, and nothing that it refuses."""

import re

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from support.paths import ROOT

from lantern.cli.help_page import ABOUT, help_page, register
from lantern.cli.plain_settings import ADDED

CONF = ROOT / "conf"
COMMANDS = ("evaluate", "train", "export")
# Read, and left out: a group in which only users have options, and one that only models set
LEFT_OUT = {"evaluate": set(), "train": {"experiment"}, "export": {"sampling"}}


def with_defaults(command: str) -> set[str]:
    """The groups that the command's configuration chooses an option of, as Hydra composes it."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose(command, return_hydra_config=True)
    chosen = {name.split("@")[0] for name in composed.hydra.runtime.choices if not name.startswith("hydra/")}
    return chosen | ({"metrics"} if "metrics" in composed else set())  # a list, which Hydra does not count


@pytest.mark.parametrize("command", COMMANDS)
def test_the_groups_a_command_reads_are_described(command):
    ours = {name for name in with_defaults(command) if "/" not in name and (CONF / name).is_dir()}
    assert set(ABOUT[command]) == (ours | set(ADDED[command])) - LEFT_OUT[command]


@pytest.mark.parametrize("command", COMMANDS)
def test_groups_stand_under_the_sign_they_are_given_with(command):
    replaced, _, added = help_page(command).partition("Groups to add")
    for name in ABOUT[command]:
        assert f"\n  {name}: " in (replaced if name in with_defaults(command) else added), name


@pytest.mark.parametrize("command", COMMANDS)
def test_own_settings_stand_there_with_their_comments(command):
    page = help_page(command).replace("$$", "$")
    for name in OmegaConf.load(CONF / f"{command}.yaml"):
        assert re.search(rf"^{name}:", page, re.MULTILINE) or name in ("defaults", "hydra"), name
    assert "hydra:" not in page
    assert max(map(len, page.splitlines())) <= 140


def test_options_are_those_of_the_command():
    assert re.search(r"\n  sweep: .*\n      recipe\n", help_page("train"))
    assert "recipe" not in help_page("evaluate")
    assert re.search(r"\n  drafter: .*\n      eagle, parallel\n", help_page("train"))


@pytest.mark.parametrize("command", COMMANDS)
def test_hydra_prints_the_page(command):
    """Catches a name that the yaml and the resolver spell differently."""
    register()
    template = OmegaConf.load(CONF / f"{command}.yaml").hydra.help.template
    assert template == help_page(command)
