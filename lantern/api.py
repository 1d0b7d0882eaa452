"""The Python interface: `lantern.load("llamagen").generate(["a red sphere on wood"], tree="static")`.
Names are those of the config groups in conf/; objects of your own are taken as they are."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Integral

from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from lantern.cli.composing import built, composed
from lantern.cli.error_messages import sentence, user_error
from lantern.cli.settings import check_settings, group_of, key_of, warn_unused_tree
from lantern.data.prompts import Batch, check_text
from lantern.errors import LanternError, check_batch_size
from lantern.evaluation.contender import decode_images
from lantern.noise import image_seed
from lantern.pipeline import DrafterOverrides, Pipeline, check_skip, pipelines
from lantern.runtime.hardware import allow_tf32
from lantern.runtime.home import CONFIG_FOLDER
from lantern.streaming import Progress, stream
from lantern.tuning.auto import AutoTree, resolve_tree
from lantern.types import AcceptanceRule, Drafter, Generation, Target, TreePolicy, Verification

PARTS = ("tree", "acceptance", "verification", "drafter")  # by default those of conf/evaluate.yaml
OF_A_MODEL = ("model", "sampling", "device", "dtype", "tf32", "paths", "compile")
ASKED = {  # methods, of which a part has one at least
    "tree": ("grow",), "acceptance": ("judge",), "verification": ("proposals",), "drafter": ("draft", "decode"),
    "sampling": ("is_greedy",),
}  # fmt: skip
OF_A_PIPELINE = (*PARTS, "sampling", "compile")


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Images of a list of prompts, in order, with their tokens and the statistics of decoding."""

    images: Tensor  # [B, 3, H, W] in [0, 1]
    tokens: Tensor  # [B, L]
    statistics: Generation

    def __repr__(self) -> str:
        return f"Images(images {[*self.images.shape]}, tokens {[*self.tokens.shape]}, {self.statistics})"


class Model:
    """A loaded target. Weights are read once; drafter, tree and rule are chosen call by call."""

    def __init__(self, name: str, overrides: Sequence[str]) -> None:
        _check_names(model=name)
        _check_list("overrides", overrides)
        for override in overrides:
            _check_loadable(override)
        self._name = name
        self._of_parts = [override for override in overrides if group_of(override) in PARTS]
        self._overrides = [f"model={name}", *(given for given in overrides if given not in self._of_parts)]
        config = _compose(self._overrides)
        check_settings(config)
        allow_tf32(config.tf32)
        with _in_one_sentence(config.model):
            self.target: Target = built(config.model)

    def pipeline(
        self,
        tree: str | TreePolicy | None = None,
        acceptance: str | AcceptanceRule | None = None,
        verification: str | Verification | None = None,
        drafter: str | Drafter | None = None,
        method: str | None = None,
        settings: Sequence[str] = (),
        batch_size: int = 1,
    ) -> Pipeline:
        """The parts by name or as objects; by default those of conf/evaluate.yaml, or of the method.

        settings: overrides of parts such as "acceptance.lam=3", "sampling.top_k=500", and of compile. batch_size: the
        one for which tree="auto" searches the fastest tree, anew at every call: keep the pipeline.
        """
        _check_list("settings", settings)
        for setting in settings:
            if group_of(setting) not in OF_A_PIPELINE or setting.startswith("~"):
                raise LanternError(f"{setting} is no setting of a part; settings= takes {', '.join(OF_A_PIPELINE)}")
        check_batch_size(batch_size)
        given = {"tree": tree, "acceptance": acceptance, "verification": verification, "drafter": drafter}
        named = {group: part for group, part in given.items() if isinstance(part, str)}
        _check_names(**named, **({} if method is None else {"method": method}))
        objects = {group: part for group, part in given.items() if not isinstance(part, str | None)}
        presets = [] if method is None else [f"+method={method}"]
        config = self._config([*presets, *(f"{group}={part}" for group, part in named.items()), *settings])
        check_settings(config)
        with _in_one_sentence(config):
            parts = {group: built(config[group]) for group in (*PARTS, "sampling") if group not in objects} | objects
            _check_parts(parts)
            shape = parts.pop("tree")
            if isinstance(shape, AutoTree):
                shape = shape.at(batch_size)
            chosen = [] if tree is None else [f"tree={named.get('tree', type(tree).__name__)}"]
            chosen += [setting for setting in settings if group_of(setting) == "tree"]
            warn_unused_tree(chosen, shape, parts["drafter"])
            joined = pipelines(self.target, **parts, name=self._name, compile=config.compile)
            pipeline = joined(resolve_tree(shape, joined))
            check_skip(pipeline)
            return pipeline

    def _config(self, chosen: Sequence[str]) -> DictConfig:
        """With the settings of parts given to load() that the chosen parts have."""
        found = _compose([*self._overrides, *chosen])
        kept = [given for given in self._of_parts if given[0] in "+~" or _has(found, key_of(given))]
        return _compose([*self._overrides, *kept, *chosen]) if kept else found

    def generate(self, prompts: Sequence[str], seed: int = 0, batch_size: int = 8, **parts) -> Images:
        """Images of the prompts; parts: see pipeline(). A repeated prompt gets another copy number, and so another
        image."""
        _check_list("prompts", prompts)
        check_batch_size(batch_size)
        for prompt in prompts:
            check_text(prompt)
        seeds = Batch.cycle(prompts, len(prompts), _whole(seed)).seeds
        pipeline = self.pipeline(**parts, batch_size=min(batch_size, len(prompts)) or 1)
        generation = pipeline.generate(prompts, seeds, batch_size)
        images = decode_images(self.target, generation.tokens, "give fewer prompts at a time")
        return Images(images, generation.tokens, generation)

    def stream(self, prompt: str, seed: int = 0, **parts) -> Iterator[Progress]:
        """generate([prompt], seed, **parts) round by round: decoding goes on as values are taken."""
        _check_list("prompt", [prompt])
        check_text(prompt)
        return stream(self.pipeline(**parts), prompt, image_seed(_whole(seed), prompt, 0))


def load(model: str = "llamagen", overrides: Sequence[str] = ()) -> Model:
    """A model by its name in conf/model; overrides such as "device=cpu", "dtype=float32" or "model.folder=…", and
    settings of a drafter, tree or rule such as "drafter.checkpoint=…", which hold wherever the chosen one has them.
    Hydra's global state is neither needed nor changed. Raises LanternError for a model that cannot be loaded, and for
    settings that would be ignored."""
    return Model(model, overrides)


@contextmanager
def _in_one_sentence(config: DictConfig) -> Iterator[None]:
    """Raises the LanternError that Hydra wraps, or the one that a command would end with."""
    try:
        yield
    except Exception as error:
        known = user_error(error, config)
        if known is None and isinstance(error, CompactHydraException):
            known = LanternError(sentence(error))
        if known is None or known is error:
            raise
        raise known from error


def _compose(overrides: Sequence[str]) -> DictConfig:
    """Raises LanternError for overrides that do not fit."""
    try:
        return composed(CONFIG_FOLDER, "evaluate", overrides)
    except (CompactHydraException, ValueError) as error:
        reason = sentence(error) if isinstance(error, CompactHydraException) else user_error(error)
        if reason is None:
            raise
        raise LanternError(f"{' '.join(overrides)}: {reason}") from error


def _check_loadable(override: str) -> None:
    """Raises LanternError for what load() would ignore, or pipeline() take instead of its own or drop."""
    group, _, name = key_of(override).partition(".")
    is_of_part = group in PARTS and bool(name)
    if not is_of_part and (group not in OF_A_MODEL or override.startswith("~")):
        raise LanternError(
            f"{override} is no setting of a model; load() takes {', '.join(OF_A_MODEL)} and settings of parts, such as "
            "drafter.checkpoint=…; parts themselves are given to generate() or pipeline()"
        )
    options = [OmegaConf.load(path) for path in (CONFIG_FOLDER / group).glob("*.yaml")]
    if is_of_part and override[0] not in "+~" and not any(_has(option, name) for option in options):
        raise LanternError(f"{override} is a setting of no {group} in conf/{group}; leave it out")


def _check_list(name: str, given: Sequence[str]) -> None:
    """Raises LanternError for what is no list of texts; of one text each letter would be an element."""
    if isinstance(given, str):
        raise LanternError(f"{name}={given!r} is one text; give a list of texts")
    if not isinstance(given, Sequence) or not all(isinstance(text, str) for text in given):
        raise LanternError(f"{name}={given!r} is no list of texts; give one")


def _check_names(**names: object) -> None:
    """Raises LanternError for what cannot be the name of a yaml in the folder of its group."""
    for group, name in names.items():
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
            raise LanternError(f"{group}={name!r} is no name; give one of those in conf/{group}")


def _check_parts(parts: Mapping[str, object]) -> None:
    """Raises LanternError for an object that does none of what its part is asked for."""
    for group, part in parts.items():
        is_open = isinstance(part, partial | AutoTree | DrafterOverrides | None)
        if not is_open and not any(hasattr(part, name) for name in ASKED[group]):
            raise LanternError(f"{group}={part!r} has no {' or '.join(ASKED[group])}; give one of lantern/types.py")


def _whole(seed: object) -> int:
    """The seed, which may also be a number of numpy's. LanternError for what is no whole number."""
    if not isinstance(seed, Integral) or isinstance(seed, bool):
        raise LanternError(f"seed={seed!r} is no whole number; give one")
    return int(seed)


def _has(config: DictConfig, key: str) -> bool:
    group, _, name = key.rpartition(".")
    part = OmegaConf.select(config, group) if group else config
    return isinstance(part, DictConfig) and name in part
