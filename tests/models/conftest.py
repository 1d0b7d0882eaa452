"""Targets of the families that run through transformers, each made once a module."""

from collections.abc import Callable
from functools import cache

import pytest
from hydra.utils import instantiate
from support.families import Family, Loaded, config


@pytest.fixture(scope="module")
def load(tmp_path_factory) -> Callable[[Family], Loaded]:
    @cache
    def load(family: Family) -> Loaded:
        folder = tmp_path_factory.mktemp(family.model)
        slow = family.make(folder)
        return Loaded(family, folder, instantiate(config(family, folder).model), slow)

    return load


@pytest.fixture
def loaded(load, family) -> Loaded:
    return load(family)
