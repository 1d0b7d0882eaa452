"""A Hydra sweeper for several grids in one sweep, such as two methods that vary different numbers. Hydra loads sweepers
only from the package hydra_plugins."""

from collections.abc import Mapping, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from lantern.cli.composing import BasicSweeper

RULE_SETTINGS = ("acceptance.", "tree.")  # of the sweep's rule and tree, which no reference has


class GridsSweeper(BasicSweeper):
    """grids: the axes of each grid, in the syntax of `hydra.sweeper.params`, which holds the axes common to all grids.
    The command line replaces axes of the same name; given a grid's first axis (+method=…), it replaces all grids.
    references: settings to compare the points with, behind them. They keep their own settings whatever the command line
    says, take none of the sweep's axes, rules, trees and verifications, and are left out where a method is given."""

    def __init__(
        self, grids: Sequence[Mapping[str, object]], params: Mapping[str, str] | None = None,
        max_batch_size: int | None = None, references: Sequence[Mapping[str, object]] = (),
    ) -> None:  # fmt: skip
        super().__init__(max_batch_size, params)
        self.grids, self.references = grids, references

    def split_arguments(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:
        """The points of all grids and the references, in batches; each point is a list of overrides."""
        given = set(map(_key, overrides))
        replaced = any(next(iter(grid)).lstrip("+") in given for grid in self.grids)
        points = []
        for grid in [{}] if replaced or not self.grids else self.grids:
            points += BasicSweeper.split_arguments([*_parsed(grid), *overrides], None)[0]
        for reference in [] if "method" in given else self.references:
            points += BasicSweeper.split_arguments(self._of_reference(reference, overrides), None)[0]
        return list(self.split_overrides_to_chunks(points, max_batch_size))

    def _of_reference(self, reference: Mapping[str, object], overrides: Sequence[Override]) -> list[Override]:
        named = {_key(override): override for override in overrides}
        others = (*RULE_SETTINGS, "drafter.") if "drafter" in named else RULE_SETTINGS
        taken = {*(key.lstrip("+") for key in (*reference, *self.params)), "tree", "verification"}
        kept = [override for key, override in named.items() if key not in taken and not key.startswith(others)]
        return [*_parsed(reference), *kept]


def _key(override: Override) -> str:
    """Of a setting, also where `+` or `++` adds it."""
    return override.get_key_element().lstrip("+")


def _parsed(axes: Mapping[str, object]) -> list[Override]:
    return OverridesParser.create().parse_overrides([f"{name}={values}" for name, values in axes.items()])
