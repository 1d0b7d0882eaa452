"""A Hydra sweeper for several grids in one sweep, such as two methods that vary different numbers. Hydra loads sweepers
only from the package hydra_plugins."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from lantern.cli.settings import key_of

log = logging.getLogger(__name__)

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
        self.grids, self.references, self.left_out = grids, references, set[str]()

    def split_arguments(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:
        """The points of all grids and the references, in batches; each point is a list of overrides."""
        given = set(map(_key, overrides))
        replaced = any(next(iter(grid)).lstrip("+") in given for grid in self.grids)
        points = []
        for grid in [{}] if replaced or not self.grids else self.grids:
            points += BasicSweeper.split_arguments([*_parsed(grid), *overrides], None)[0]
        for reference in [] if "method" in given else self.references:
            points += BasicSweeper.split_arguments(self._of_reference(reference, overrides), None)[0]
        return list(self.split_overrides_to_chunks(self._fitting(points, overrides), max_batch_size))

    def _fitting(self, points: list[list[str]], overrides: Sequence[Override]) -> list[list[str]]:
        """Each point once, without the settings of a swept group that its choice lacks and another point's has; of one
        that none has Hydra says so."""
        swept = {_key(override) for override in overrides if override.is_sweep_override()}
        given = [key for key in swept if key.partition(".")[0] in swept and "." in key]
        if not given or self.hydra_context is None or self.config is None:
            return points
        lacking = []
        for point in points:
            choices = [override for override in point if "." not in key_of(override)]
            config = self.hydra_context.config_loader.load_sweep_config(self.config, choices)
            lacking.append({key for key in given if key.rpartition(".")[2] not in _names(config, key)})
        nowhere = set.intersection(*lacking)
        found: dict[tuple[str, ...], list[str]] = {}
        for point, lacks in zip(points, lacking, strict=True):
            kept = [override for override in point if key_of(override) not in lacks - nowhere]
            found[tuple(kept)] = kept
            if lacks - nowhere:
                self.left_out.add(f"{', '.join(sorted(lacks - nowhere))} of the point {' '.join(kept)}")
        return list(found.values())

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        for told in sorted(self.left_out):
            log.info("left out, as the chosen part has no such setting: %s", told)
        self.left_out = set()
        super().validate_batch_is_legal(batch)

    def _of_reference(self, reference: Mapping[str, object], overrides: Sequence[Override]) -> list[Override]:
        named = {_key(override): override for override in overrides}
        others = (*RULE_SETTINGS, "drafter.") if "drafter" in named else RULE_SETTINGS
        taken = {*(key.lstrip("+") for key in (*reference, *self.params)), "tree", "verification"}
        kept = [override for key, override in named.items() if key not in taken and not key.startswith(others)]
        return [*_parsed(reference), *kept]


def _names(config: DictConfig, key: str) -> Iterable[object]:
    """The settings of the part that a key is of."""
    part = OmegaConf.select(config, key.rpartition(".")[0])
    return part.keys() if isinstance(part, DictConfig) else ()


def _key(override: Override) -> str:
    """Of a setting, also where `+` or `++` adds it."""
    return override.get_key_element().lstrip("+")


def _parsed(axes: Mapping[str, object]) -> list[Override]:
    return OverridesParser.create().parse_overrides([f"{name}={values}" for name, values in axes.items()])
