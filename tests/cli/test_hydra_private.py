"""Hydra's private interfaces that Lantern uses: a release of Hydra that lacks one fails here, by its name."""

import pytest
from hydra.core.utils import JobReturn
from hydra.utils import get_object

PRIVATE = [
    "hydra._internal.utils.run_and_report", "hydra._internal.utils.create_config_search_path",
    "hydra._internal.config_loader_impl.ConfigLoaderImpl.load_configuration",
    "hydra._internal.core_plugins.basic_sweeper.BasicSweeper.split_arguments",
    "hydra.version.VersionBase.instance", "hydra.version.getbase",
]  # fmt: skip


@pytest.mark.parametrize("name", PRIVATE)
def test_hydra_has_what_is_taken_from_it(name):
    assert callable(get_object(name)), f"this release of Hydra has no {name}; see lantern/cli/hydra_private.py"


def test_a_failed_point_holds_its_error():
    assert JobReturn(_return_value=3)._return_value == 3
