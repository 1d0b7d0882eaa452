"""docs/extending.md: the combinations of parts, built and decoded again, and what fills in arguments of partials."""

import re
from inspect import signature

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf
from support.paths import CONF

from tools.markdown import split_page
from tools.matrix import DRAFTERS, FORMS, PAGE, VERIFICATIONS, tables


@pytest.mark.full
def test_the_page_has_the_combinations_that_decode(tmp_path):
    """Catches a check that refuses more or less than the page says, and a rule of conf/ that it leaves out."""
    found, page = tables(tmp_path), PAGE.read_text()
    assert {name: split_page(page, name)[1] for name in found} == found
    assert all(name in page for name in (*DRAFTERS, *(f"`{name}`" for name in (*FORMS, *VERIFICATIONS))))


@pytest.mark.parametrize("group", ["acceptance", "verification", "drafter"])
def test_the_page_names_what_fills_in_each_partial(group):
    """Catches a part of conf/ that waits for an argument which the page does not name, and one that none waits for."""
    waits = set()
    for config in map(OmegaConf.load, (CONF / group).glob("*.yaml")):
        if config.get("_partial_"):
            arguments = signature(get_object(config["_target_"])).parameters.values()
            waits |= {argument.name for argument in arguments if argument.default is argument.empty} - config.keys()
    (names,) = re.findall(rf"^\| `{group}/` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert re.findall(r"`(\w+)`", names) == sorted(waits)
