"""The Python interface: `lantern.load("llamagen").generate(["a red sphere on wood"], tree="static")`.
Names are those of the config groups in conf/; objects of your own are taken as they are, classes and partials with the
codebook, target, sampling or tree that they lack."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import product
from operator import index
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import torch
from hydra.errors import CompactHydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from PIL.Image import Image, fromarray
from torch import Tensor, nn

from lantern.cli.composing import built, composed
from lantern.cli.error_messages import user_error
from lantern.cli.settings import check_numbers, check_settings, group_of, key_of
from lantern.data.image_sets import arrays_of
from lantern.data.prompts import Batch, load_prompts
from lantern.data.text_tables import is_text
from lantern.errors import LanternError, check_whole, explaining, meant
from lantern.evaluation.sides import decode_images
from lantern.noise import image_seed
from lantern.pipeline import Pipeline, bind_missing, check_skip, pipelines
from lantern.runtime.hardware import allow_tf32
from lantern.runtime.home import CONFIG_FOLDER
from lantern.runtime.overrides import as_typed, leaves, override
from lantern.streaming import Progress, stream
from lantern.tuning.auto import AutoTree, resolve_tree
from lantern.types import AcceptanceRule, Drafter, Generation, Target, TreePolicy, Verification, reader_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lantern.models.hf.pretrained import Pretrained

PARTS = ("tree", "acceptance", "verification", "drafter")  # by default those of conf/evaluate.yaml
OF_A_MODEL = ("model", "sampling", "device", "dtype", "tf32", "paths", "compile")
OF_GENERATION = {  # settings of sampling, by the names of transformers' GenerationConfig
    "sampling.temperature": "temperature", "sampling.top_k": "top_k", "sampling.top_p": "top_p",
    "sampling.cfg_scale": "guidance_scale",
}  # fmt: skip
WRAPPED = {"janus": "janus_pro", "emu3": "emu3", "glm_image": "glm_image"}  # by model_type, what conf/model has
OF_A_PIPELINE = (*PARTS, "sampling", "compile")
Settings = Sequence[str] | Mapping[str, object]  # such as {"acceptance.lam": 3}, or ["acceptance.lam=3"]


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Images of a list of prompts, in order, with their tokens and the statistics of decoding."""

    images: Tensor  # [B, 3, H, W] in [0, 1]
    tokens: Tensor  # [B, L]
    statistics: Generation

    def pil(self) -> list[Image]:
        """As 8-bit images of Pillow."""
        return [fromarray(pixels) for pixels in arrays_of(self.images.float().cpu())]

    def __repr__(self) -> str:
        return f"Images(images {[*self.images.shape]}, tokens {[*self.tokens.shape]}, {self.statistics})"


class Model:
    """A loaded target. Weights are read once; drafter, tree and rule are chosen call by call."""

    def __init__(
        self, name: str, overrides: Sequence[str], loaded: "Pretrained | Target | None" = None, own: Sequence[str] = ()
    ) -> None:  # fmt: skip
        """own: folders of the user's yamls."""
        check_default_dtype()
        self._turn = RLock()  # a target has one cache
        for given in overrides:
            _check_loadable(given, own)
        self.name = name
        self._of_parts = [given for given in overrides if group_of(given) in PARTS]
        self._own = own
        chosen = [] if _is_target(loaded) else [f"model={name}"]
        self.overrides = [*chosen, *(given for given in overrides if given not in self._of_parts)]
        config = compose(self.overrides, own)
        check_settings(config)
        if any(key_of(given) == "drafter.checkpoint" for given in self._of_parts):
            from lantern.drafters.loading import RANDOM, drafter_folder  # imports the Hub's client

            if (checkpoint := self._config([]).drafter.checkpoint) != RANDOM:
                drafter_folder(checkpoint)
        allow_tf32(config.tf32)
        with errors_told(config.model):
            check_numbers({"model": config.model})
            if _is_target(loaded):
                self.target: Target = loaded
            else:
                self.target = built(config.model) if loaded is None else _around(config.model, loaded)

    @cached_property
    def prompts(self) -> list[str]:
        """Those that evaluate.py takes for it, with the settings that its conditioner is evaluated with."""
        needed = reader_of(self.target).evaluate_with
        config = compose([*needed, *self.overrides], self._own)
        return load_prompts(config.prompts, Path(config.paths.root) / "data" / "prompts")

    def pipeline(
        self, tree: str | TreePolicy | partial | None = None,
        acceptance: str | AcceptanceRule | type | partial | None = None,
        verification: str | Verification | type | partial | None = None,
        drafter: str | Drafter | type | partial | None = None, method: str | None = None, settings: Settings = (),
        batch_size: int = 1, prompts: Sequence[str] = (),
    ) -> Pipeline:  # fmt: skip
        """The parts by name, as objects, or as classes; by default those of conf/evaluate.yaml, or of the method.

        settings: of parts, such as {"acceptance.lam": 3, "sampling.top_k": 500}, and of compile. batch_size: the one
        for which tree="auto" searches the fastest tree, anew at every call: keep the pipeline. prompts: of that
        search; by default those that evaluate.py takes for the model.
        """
        check_default_dtype()
        settings = overrides_of(settings)
        for setting in settings:
            if group_of(setting) not in OF_A_PIPELINE or setting.startswith("~"):
                raise LanternError(f"{setting} is no setting of a part; settings= takes {', '.join(OF_A_PIPELINE)}")
        check_whole("", 1, batch_size=batch_size)
        given = {"tree": tree, "acceptance": acceptance, "verification": verification, "drafter": drafter}
        named = {group: part for group, part in given.items() if isinstance(part, str)}
        objects = {group: part for group, part in given.items() if not isinstance(part, str | None)}
        if lost := next((setting for setting in settings if group_of(setting) in objects), None):
            raise LanternError(f"{lost} is of a part that is given as an object; set it there")
        presets = [] if method is None else [f"+method={method}"]
        config = self._config([*presets, *(f"{group}={part}" for group, part in named.items()), *settings])
        check_settings(config)
        with errors_told(config):
            configs = {group: config[group] for group in (*PARTS, "sampling") if group not in objects}
            check_numbers(configs)
            parts = {group: built(part) for group, part in configs.items()} | objects
            parts = {group: partial(part) if isinstance(part, type) else part for group, part in parts.items()}
            shape = bind_missing(parts.pop("tree"))
            if isinstance(shape, AutoTree):
                has_own = "tree" in objects or any(key_of(given).startswith("tree.prompts") for given in settings)
                shape = shape.at(batch_size) if has_own else AutoTree(prompts or self.prompts, batch_size)
            chosen = [] if tree is None else [f"tree={named.get('tree', type(tree).__name__)}"]
            chosen += [setting for setting in settings if group_of(setting) == "tree"]
            joined = pipelines(self.target, **parts, name=self.name, compile=config.compile)
            pipeline = joined(resolve_tree(shape, joined, chosen))
            check_skip(pipeline)
            return pipeline

    def _config(self, chosen: Sequence[str]) -> DictConfig:
        """With the settings of parts given to load() that the chosen parts have. The last ones are kept as long as no
        yaml changes: composing them may take longer than an image."""
        folders = product((CONFIG_FOLDER, *self._own), ("", "*/", "*/*/"))
        yamls = sorted(path for folder, inner in folders for path in Path(folder).glob(f"{inner}*.yaml"))
        given_by = tuple(self._own), tuple((path, path.stat().st_mtime_ns) for path in yamls)
        found = _composed((*self.overrides, *chosen), *given_by)
        kept = [given for given in self._of_parts if given[0] in "+~" or _has(found, key_of(given))]
        return _composed((*self.overrides, *kept, *chosen), *given_by) if kept else found

    def generate(
        self, prompts: Sequence[str], seed: int = 0, batch_size: int = 8, *, images_per_prompt: int = 1,
        temperature: float | None = None, guidance_scale: float | None = None, top_k: int | None = None,
        top_p: float | None = None, **parts,
    ) -> Images:  # fmt: skip
        """images_per_prompt consecutive images per prompt. None: the model's own sampling; parts: see
        pipeline(). A repeated prompt gets another copy number, and so another image. Threads take turns."""
        check_texts("prompts", prompts)
        check_whole("", 1, batch_size=batch_size)
        check_whole("generate", 1, images_per_prompt=images_per_prompt)
        prompts = [prompt for prompt in prompts for _ in range(images_per_prompt)]
        sampling = {"temperature": temperature, "cfg_scale": guidance_scale, "top_k": top_k, "top_p": top_p}
        given = [f"sampling.{name}={value}" for name, value in sampling.items() if value is not None]
        parts["settings"] = [*overrides_of(parts.get("settings", [])), *given]
        seeds = Batch.cycle(prompts, len(prompts), _whole(seed)).seeds
        with self._turn:
            pipeline = self.pipeline(**parts, batch_size=min(batch_size, len(prompts)) or 1, prompts=prompts)
            generation = pipeline.generate(prompts, seeds, batch_size)
        images = decode_images(self.target, generation.tokens, "give fewer prompts at a time")
        return Images(images, generation.tokens, generation)

    def stream(self, prompt: str, seed: int = 0, **parts) -> Iterator[Progress]:
        """generate([prompt], seed, **parts) round by round: decoding goes on as values are taken."""
        check_texts("prompts", [prompt])
        return stream(self.pipeline(**parts), prompt, image_seed(_whole(seed), prompt, 0))


def load(
    model: str | Target = "llamagen", settings: Settings = (), *, device: str | None = None, dtype: str | None = None,
    config_dir: str | Sequence[str] = (),
) -> Model:  # fmt: skip
    """A model by its name in conf/model or in a folder of your own, config_dir, or a Target that is there already;
    settings such as {"model.folder": …}, and those of a drafter, tree or rule such as {"drafter.checkpoint": …}, which
    hold wherever the chosen one has them. Hydra's global state is neither needed nor changed. Raises LanternError
    for a model that cannot be loaded, a drafter.checkpoint that is not there, and settings that would be ignored."""
    given = {name: value for name, value in (("device", device), ("dtype", dtype)) if value is not None}
    chosen = [*overrides_of(settings), *overrides_of(given)]
    folders = [config_dir] if isinstance(config_dir, str | Path) else config_dir
    own = [str(Path(folder).expanduser().resolve()) for folder in folders]
    if missing := [folder for folder in own if not Path(folder).is_dir()]:
        raise LanternError(f"config_dir={missing[0]} is no folder; give one that holds yamls as conf/ does")
    if not _is_target(model):
        return Model(model, chosen, own=own)
    if refused := [text for text in chosen if group_of(text) in ("model", "device", "dtype")]:
        raise LanternError(f"{refused[0]} is for a model by name; this {type(model).__name__} is taken as it is")
    return Model(type(model).__name__, [override("sampling.cfg_scale", model.cfg_scale), *chosen], model, own)


def wrap(model: "PreTrainedModel", processor: object, name: str | None = None, settings: Settings = ()) -> Model:
    """A model of transformers that is loaded already, as load() returns it; its weights are shared, and it stays as it
    is. processor: its processor or tokenizer; name: its yaml in conf/model, where its class leaves a choice; settings:
    as for load(), such as {"model.image_size": 512}; sampling is by default as its generation_config says. A drafter
    fits if it was trained on a model of the same weights, wherever they were read."""
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise LanternError(f"{str(model)[:80]} is no model of transformers; give one that is loaded")
    name = name or WRAPPED.get(getattr(model.config, "model_type", ""))
    if name is None:
        kind = type(model).__name__
        raise LanternError(f"{kind} may be one of several models; give its name in conf/model, as name='anole'")
    from lantern.models.hf.pretrained import wrap_loaded  # imports transformers

    own = getattr(model, "generation_config", None)
    sampling = {} if own is None else own.to_diff_dict()
    held = {key: sampling[theirs] for key, theirs in OF_GENERATION.items() if sampling.get(theirs) is not None}
    given = ["model.checkpoint=null", *overrides_of(held), *overrides_of(settings)]
    return Model(name, given, wrap_loaded(model, processor))


def _around(config: DictConfig, loaded: "Pretrained") -> Target:
    kind = type(loaded.model).__name__
    with explaining(f"{kind} is no such model", "give the name in conf/model of its own", LanternError):
        return instantiate(config, _partial_=True)(checkpoint=loaded)


@contextmanager
def errors_told(config: DictConfig) -> Iterator[None]:
    """Raises the LanternError that Hydra wraps, or the one that a command would end with."""
    try:
        yield
    except Exception as error:
        known = user_error(error, config)
        if known is None or known is error:
            raise
        raise known from error


def compose(overrides: Sequence[str], own: Sequence[str] = (), command: str = "evaluate") -> DictConfig:
    """Raises LanternError for overrides that do not fit. own: folders of the user's yamls."""
    try:
        return composed(CONFIG_FOLDER, command, overrides, own)
    except (CompactHydraException, ValueError) as error:
        if (reason := user_error(error)) is None:
            raise
        raise LanternError(f"{' '.join(overrides)}: {reason}") from error


@lru_cache(16)
def _composed(overrides: tuple[str, ...], own: tuple[str, ...], stamps: tuple) -> DictConfig:
    """compose(), for those who change nothing in it. stamps: of the yamls."""
    return compose(overrides, own)


def _check_loadable(override: str, own: Sequence[str]) -> None:
    """Raises LanternError for overrides that load() would ignore, or pipeline() would drop or prefer to its own."""
    group, _, name = key_of(override).partition(".")
    is_of_part = group in PARTS and bool(name)
    if not is_of_part and (group not in OF_A_MODEL or override.startswith("~")):
        raise LanternError(
            f"{override} is no setting of a model; {meant(group, {*OF_A_MODEL, *PARTS} - {group})}load() takes "
            f"{', '.join(OF_A_MODEL)} and settings of parts, such as drafter.checkpoint=…; parts themselves are given "
            "to generate() or pipeline()"
        )
    folders = [Path(folder) / group for folder in (CONFIG_FOLDER, *own)]
    options = [OmegaConf.load(path) for folder in folders for path in folder.glob("*.yaml")]
    if is_of_part and override[0] not in "+~" and not any(_has(option, name) for option in options):
        known = {str(key) for option in options for key in option}
        raise LanternError(f"{override} is a setting of no {group} in conf/{group}; {meant(name, known)}leave it out")


def _is_target(given: object) -> bool:
    return hasattr(given, "verify") and hasattr(given, "commit")


def overrides_of(given: Settings) -> list[str]:
    """In Hydra's grammar, which a mapping of names to values does without."""
    if isinstance(given, Mapping):
        return [override(key, value) for key, value in leaves(given).items()]
    check_texts("settings", given)
    return [as_typed(text) for text in given]


def check_default_dtype() -> None:
    """Weights and tables are made in torch's default dtype before they are cast."""
    if (default := torch.get_default_dtype()) != torch.float32:
        raise LanternError(f"torch's default dtype is {default}; set it to torch.float32, and give load() dtype=…")


def check_texts(name: str, given: Sequence[str]) -> None:
    """Raises LanternError for what is no list of texts; of one text each letter would be an element."""
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    if not is_list or not all(isinstance(text, str) and is_text(text) for text in given):
        raise LanternError(f"{name}={given!r} is no list of texts; give one")


def _whole(seed: int) -> int:
    """Also numpy's and torch's whole numbers."""
    with explaining(f"seed={seed!r} is no whole number", "give one", LanternError):
        return index(seed)


def _has(config: DictConfig, key: str) -> bool:
    group, _, name = key.rpartition(".")
    part = OmegaConf.select(config, group) if group else config
    return isinstance(part, DictConfig) and name in part
