"""python -m tools.matrix: which drafters, verifications and forms of rule go together, found by decoding two images
with each combination on random weights; writes the tables of docs/extending.md."""

import logging
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hydra.utils import get_class
from omegaconf import OmegaConf
from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern_pp import LanternPP
from lantern.acceptance.relaxed import relaxed
from lantern.acceptance.tv_budget import TvBudget
from lantern.api import Model, load
from lantern.errors import LanternError
from lantern.pipeline import Pipeline
from lantern.runtime.home import CHECKOUT, CONFIG_FOLDER
from lantern.types import Site
from lantern.verification import Ratio, choose_shared_noise
from lantern.verification.block import Block
from lantern.verification.longest_path import LongestPath
from lantern.verification.runs import Runs
from lantern.verification.traversal import Traversal
from tools.markdown import table_lines, write_block
from tools.miniature import write_tiny_weights

PAGE = CHECKOUT / "docs" / "extending.md"
SIDE = 4  # tokens
PROMPTS, SEEDS = ["a red sphere on wood", "wood"], [0, 1]
VERIFICATIONS = {
    "shared_noise": choose_shared_noise, "ratio": lambda rule: Ratio(), "block": lambda rule: Block(),
    "traversal": lambda rule: Traversal(), "longest_path": lambda rule: LongestPath(), "runs": lambda rule: Runs(0.8),
}  # fmt: skip
TREES = ("chain", "static", "eagle2", "ddd", "adaptive")
WINDOWS = (
    "jacobi", "sjd", "sjd_pp", "sjd_pac", "jacobi_paths", "corrected_jacobi", "corrected_branches", "refined_jacobi",
    "refined_branches",
)  # fmt: skip
DRAFTERS = {
    **{f"`eagle` on `{tree}`": {"drafter": "eagle", "tree": tree} for tree in TREES},
    **{f"`{window}`": {"drafter": window} for window in WINDOWS},
    "`rows`": {"drafter": "rows", "settings": [f"drafter.window={SIDE}"]},
}


class Judged:
    """The target's law, in the form of a rule that has `judge` alone and claims nothing."""

    name, verification, lossless, parameters = "judged", "ratio", False, {}

    def judge(self, p: Tensor, q: Tensor | None, x: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        return relaxed(p, q, x)


FORMS = {  # what tells them apart, the first that fits
    "exact": ("nothing more: it is `lossless`", lambda rule: rule is Exact),
    "relax": ("`relax(p, x)`: the law p~ that is p's when token x is judged", lambda rule: hasattr(rule, "relax")),
    "law": ("`law(p, q, depth)`: the law r that is committed in p's place", lambda rule: hasattr(rule, "law")),
    "judge": ("`judge` alone", lambda rule: True),
}


def rules_of(codebook: Tensor) -> dict[str, object]:
    """A rule of each form."""
    return {"exact": Exact(), "relax": LanternPP(codebook, 4, 2.0), "law": TvBudget(0.1), "judge": Judged()}


def decodes(pipeline: Pipeline) -> bool:
    try:
        pipeline.generate(PROMPTS, SEEDS, len(PROMPTS))
    except LanternError:
        return False
    return True


def combinations(model: Model) -> Iterator[list[str]]:
    """Drafters, and the forms of rule that each verification takes with them; those that take the same share a line."""
    rules, drafters = rules_of(model.target.codebook), defaultdict(list)
    for name, parts in DRAFTERS.items():
        pipeline, cells = model.pipeline(**parts), []
        for choose in VERIFICATIONS.values():
            fits = [
                form for form, rule in rules.items() if decodes(replace(pipeline, rule=rule, verification=choose(rule)))
            ]
            cells.append("all" if len(fits) == len(rules) else ", ".join(f"`{form}`" for form in fits) or "-")
        drafters[tuple(cells)].append(name)
    for cells, names in drafters.items():
        yield [", ".join(names), *cells]


def shipped() -> Iterator[list[str]]:
    """A line for each form: what a rule of it has beside `judge`, and the rules for codes in conf/."""
    names: dict[str, list[str]] = {form: [] for form in FORMS}
    for path in sorted((CONFIG_FOLDER / "acceptance").glob("*.yaml")):
        rule = get_class(OmegaConf.load(path)["_target_"])
        if rule.__module__.startswith("lantern.acceptance."):  # others are of latents
            names[next(form for form, (_, fits) in FORMS.items() if fits(rule))].append(f"`{path.stem}`")
    for form, (has, _) in FORMS.items():
        yield [f"`{form}`", has, ", ".join(names[form])]


def tables(weights: Path) -> dict[str, str]:
    """The blocks of the page, by name; the weights are written to a folder of their own."""
    logging.getLogger("lantern").setLevel(logging.ERROR)  # which warns of trees that windows do not use
    overrides = [f"paths.weights={write_tiny_weights(weights, SIDE)}", "device=cpu", "dtype=float64"]
    found = {
        "forms": table_lines(["form", "a rule has", "in `conf/acceptance/`"], shipped()),
        "combinations": table_lines(
            ["drafter", *(f"`{name}`" for name in VERIFICATIONS)], combinations(load("llamagen", overrides))
        ),
    }
    return {name: "\n".join([*lines, ""]) for name, lines in found.items()}


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        for block, text in tables(Path(folder)).items():
            write_block(PAGE, block, text)
