"""The Python interface: `lantern.load("llamagen").generate(["a red sphere on wood"], tree="static")`.
Names are those of the config groups in conf/; objects of your own are taken as they are."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral

from hydra.errors import CompactHydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from lantern.cli.composing import composed
from lantern.cli.error_messages import NAMELESS, sentence, user_error
from lantern.cli.plain_settings import check_settings, warn_unused_tree
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

PARTS = ("drafter", "acceptance", "tree", "verification")  # whose settings wait for what is chosen
GROUPS = ("drafter", "tree", "acceptance", "verification", "method")  # chosen call by call
SETTABLE = ("sampling", "drafter", "tree", "acceptance", "verification", "compile")  # in a pipeline's settings
OWNERS = {  # what takes other settings
    "load()": ("model", "device", "dtype", "tf32", "paths"),
    "generate()": ("method", "prompts", "seed", "batch_size"),
}
USUAL = {"tree": "static", "acceptance": "exact", "verification": "auto", "drafter": "eagle"}


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
        """Raises LanternError for a name or a setting that does not exist or is chosen call by call, and for weights
        that cannot be had."""
        _check_list("overrides", overrides)
        for override in overrides:
            _check_loadable(override)
        self._of_parts = [override for override in overrides if _group(override) in PARTS]
        self._overrides = [f"model={name}", *(given for given in overrides if given not in self._of_parts)]
        self._name = name
        config = _compose(self._overrides)
        check_settings(config)
        allow_tf32(config.tf32)
        with _in_one_sentence(config.model):
            self.target: Target = instantiate(config.model)

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
        """The parts by name or as objects; by default static, exact, auto and eagle, or those of the method.

        settings: overrides of parts such as "acceptance.lam=3", "sampling.top_k=500", and of compile. batch_size: the
        one for which tree="auto" searches the fastest tree, anew at every call: keep the pipeline. Of the overrides
        given to load(), those of a drafter, rule or tree are left out where the chosen one has no such setting. Raises
        LanternError for parts and settings that do not exist or do not fit each other.
        """
        _check_settable(settings)
        check_batch_size(batch_size)
        given = {"tree": tree, "acceptance": acceptance, "verification": verification, "drafter": drafter}
        presets = [] if method is None else [f"+method={method}"]
        usual = {} if presets else USUAL
        named = {group: usual.get(group) if part is None else part for group, part in given.items()}
        chosen = [f"{group}={part}" for group, part in named.items() if isinstance(part, str)]
        config = self._config([*presets, *chosen, *settings])
        check_settings(config)
        objects = {group: part for group, part in given.items() if not isinstance(part, str | None)}
        with _in_one_sentence(config):
            parts = {group: instantiate(config[group]) for group in given if group not in objects}
            if isinstance(parts.get("tree"), AutoTree):
                parts["tree"] = parts["tree"].at(batch_size)
            parts |= objects | {"sampling": instantiate(config.sampling), "name": self._name, "compile": config.compile}
            chosen_tree = parts.pop("tree")
            if not isinstance(chosen_tree, AutoTree | DrafterOverrides):  # which set a window's shape as well
                warn_unused_tree(_given_trees(tree, settings), parts["drafter"])
            joined = pipelines(self.target, **parts)
            pipeline = joined(resolve_tree(chosen_tree, joined))
            check_skip(pipeline)
            return pipeline

    def _config(self, chosen: Sequence[str]) -> DictConfig:
        found = _compose([*self._overrides, *chosen])
        kept = [given for given in self._of_parts if given[0] in "+~" or _has(found, _key(given))]
        return _compose([*self._overrides, *kept, *chosen]) if kept else found

    def generate(self, prompts: Sequence[str], seed: int = 0, batch_size: int = 8, **parts) -> Images:
        """Images of the prompts. A repeated prompt gets another copy number, and so another image.

        parts: see pipeline(). Raises LanternError for parts that do not fit each other or the prompts.
        """
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
        """generate([prompt], seed, **parts) round by round: decoding goes on as values are taken. Raises LanternError
        for what does not fit."""
        check_text(prompt)
        return stream(self.pipeline(**parts), prompt, image_seed(_whole(seed), prompt, 0))


def load(model: str = "llamagen", overrides: Sequence[str] = ()) -> Model:
    """A model by its name in conf/model; overrides such as "device=cpu", "dtype=float32" or "model.folder=…", and
    settings of a drafter, tree or rule such as "drafter.checkpoint=…", which hold wherever the chosen one has them, but
    no choice of one. Hydra's global state is neither needed nor changed. Raises LanternError for a model that cannot be
    loaded, and for settings that would be ignored."""
    return Model(model, overrides)


@contextmanager
def _in_one_sentence(config: DictConfig) -> Iterator[None]:
    """Raises the LanternError that Hydra wraps, or the one that a command would end with."""
    try:
        yield
    except Exception as error:
        known = user_error(error, config)
        if known is None or known is error:
            raise
        raise known from error


def _compose(overrides: Sequence[str]) -> DictConfig:
    """Raises LanternError for overrides that do not fit."""
    try:
        return composed(CONFIG_FOLDER, "evaluate", overrides)
    except (CompactHydraException, ValueError) as error:
        is_compact = isinstance(error, CompactHydraException)
        if not is_compact and not str(error).startswith(NAMELESS):
            raise
        reason = sentence(error).removeprefix("error: ") if is_compact else "a group needs the name of an option"
        raise LanternError(f"{' '.join(overrides)}: {reason}") from error


def _check_loadable(override: str) -> None:
    """Raises LanternError for what load() would ignore, or pipeline() take instead of its own or drop."""
    group, is_whole = _group(override), "." not in _key(override)
    if group in GROUPS and is_whole:
        raise LanternError(f"{override} is chosen call by call; give {group}= to generate() or pipeline()")
    if group in PARTS and override[0] not in "+~" and not _is_any(_key(override)):
        raise LanternError(f"{override} is a setting of no {group} in conf/{group}; leave it out")
    loaded = (*OWNERS["load()"], "compile", "sampling")
    if group not in (*loaded, *PARTS) or (override.startswith("~") and is_whole):
        raise LanternError(
            f"{override} is no setting of a model; load() takes {', '.join(loaded)} and settings of parts, such as "
            "drafter.checkpoint=…"
        )


def _is_any(key: str) -> bool:
    """Whether any option of a part's group has this setting."""
    group, _, name = key.partition(".")
    options = [OmegaConf.load(path) for path in (CONFIG_FOLDER / group).glob("*.yaml")]
    return any(_has(option, name) for option in options)


def _check_settable(settings: Sequence[str]) -> None:
    """Raises LanternError for a setting that no part of a pipeline has, which would be ignored."""
    _check_list("settings", settings)
    for setting in settings:
        group = _group(setting)
        if setting.startswith("~") and "." not in _key(setting):
            raise LanternError(f"{setting} leaves no {group} to decode with; give another one in its place")
        if owner := next((call for call, names in OWNERS.items() if group in names), None):
            raise LanternError(f"{setting} is no setting of a part: {group} is {owner}'s; give it there")
        if group not in SETTABLE:
            raise LanternError(f"{setting} is no setting of a part; settings= takes {', '.join(SETTABLE)}")


def _check_list(name: str, given: Sequence[str]) -> None:
    """Raises LanternError for one text, of which each letter would be an element."""
    if isinstance(given, str):
        raise LanternError(f"{name}={given!r} is one text; give a list of texts")


def _whole(seed: object) -> int:
    """The seed, which may also be a number of numpy's. LanternError for what is no whole number."""
    if not isinstance(seed, Integral) or isinstance(seed, bool):
        raise LanternError(f"seed={seed!r} is no whole number; give one")
    return int(seed)


def _given_trees(tree: str | TreePolicy | None, settings: Sequence[str]) -> list[str]:
    named = tree if isinstance(tree, str) else type(tree).__name__
    return [*([] if tree is None else [f"tree={named}"]), *(given for given in settings if _group(given) == "tree")]


def _key(override: str) -> str:
    """What an override sets, adds or deletes."""
    return override.partition("=")[0].lstrip("+~")


def _group(override: str) -> str:
    """The config group or the section of a key."""
    return re.split("[.@]", _key(override))[0]


def _has(config: DictConfig, key: str) -> bool:
    group, _, name = key.rpartition(".")
    part = OmegaConf.select(config, group) if group else config
    return isinstance(part, DictConfig) and name in part
