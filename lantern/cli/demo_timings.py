"""Times this machine for the demo: a few images of the embedded model, by the methods that the demo sweeps."""

from collections.abc import Sequence

from hydra.utils import instantiate

from lantern.cli.compose import composed
from lantern.noise import image_seed
from lantern.pipeline import Pipeline, pipelines
from lantern.runtime.home import CONFIG_FOLDER
from lantern.studies.demo_plan import Timings
from lantern.types import Generation, Target

PROMPT = "a red sphere on wood"
BATCH = 8
LANTERN = ("acceptance=lantern", "acceptance.delta=0.1")
TREES = ("tree=chain tree.length=3", "tree=chain tree.length=6", "tree=static")
PARTS = ("drafter", "acceptance", "verification", "sampling")


def timings_of(overrides: Sequence[str]) -> Timings:
    """overrides: device and dtype. One image by each method and each of TREES, and a batch by plain decoding."""
    target = target_of(overrides)
    lossless = pipeline_of(target, [*overrides, "+method=refined_jacobi"])
    plain = lossless.baseline()
    _decoded(plain, 1)  # warms up
    return Timings(
        plain=_seconds(plain, 1),
        plain_in_batch=_seconds(plain, BATCH) / BATCH,
        lossless=_seconds(lossless, 1),
        trees={tree: _seconds(pipeline_of(target, [*overrides, *LANTERN, *tree.split()]), 1) for tree in TREES},
    )


def target_of(overrides: Sequence[str]) -> Target:
    """The target that evaluate.py loads under these overrides."""
    return instantiate(composed(CONFIG_FOLDER, "evaluate", overrides).model)


def pipeline_of(target: Target, overrides: Sequence[str]) -> Pipeline:
    """What evaluate.py decodes with on it."""
    config = composed(CONFIG_FOLDER, "evaluate", overrides)
    parts = {part: instantiate(config[part]) for part in PARTS}
    return pipelines(target, **parts)(instantiate(config.tree))


def _seconds(pipeline: Pipeline, count: int) -> float:
    if pipeline.target.passes.has_graphs:  # passes are recorded where their shapes are first met
        _decoded(pipeline, count)
    return _decoded(pipeline, count).latency_s


def _decoded(pipeline: Pipeline, count: int) -> Generation:
    seeds = [image_seed(0, PROMPT, copy) for copy in range(count)]
    return pipeline.generate([PROMPT] * count, seeds, count)
