"""A Hydra sweeper for several grids in one sweep, such as two methods that vary different numbers. Hydra loads sweepers
only from the package hydra_plugins."""

from collections.abc import Mapping, Sequence

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override


class GridsSweeper(BasicSweeper):
    """grids: the axes of each grid, in the syntax of `hydra.sweeper.params`, which holds the axes common to all grids.
    The command line replaces axes of the same name; given a grid's first axis (+method=…), it replaces all grids."""

    def __init__(
        self, grids: Sequence[Mapping[str, object]], params: Mapping[str, str] | None = None,
        max_batch_size: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(max_batch_size, params)
        self.grids = grids

    def split_arguments(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:
        """The points of all grids, in batches; each point is a list of overrides."""
        given = {override.get_key_element() for override in overrides}
        replaced = any(next(iter(grid)) in given for grid in self.grids)
        parser = OverridesParser.create()
        points = []
        for grid in [{}] if replaced else self.grids:
            axes = parser.parse_overrides([f"{name}={values}" for name, values in grid.items()])
            points += BasicSweeper.split_arguments([*axes, *overrides], None)[0]
        return list(self.split_overrides_to_chunks(points, max_batch_size))
