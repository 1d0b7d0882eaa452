"""Settings that no constructor checks: switches, sections and the device of evaluate.py, and keys added by a plus."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, UnsupportedInterpolationType

from lantern.errors import LanternError
from lantern.runtime.home import CONFIG_FOLDER

log = logging.getLogger(__name__)
SECTIONS = {"speed": "num_prompts", "quality": "num_images"}
SWITCHES = ("compile", "tf32", "dry_run")
# Sections of each command that are no constructor's arguments, with what is read of them beside the keys of its yaml
OWN: Mapping[str, Mapping[str, Sequence[str]]] = {
    "evaluate": {"speed": (), "quality": (), "sweep": ()},
    "train": {
        "rendered": ("num_train", "num_validation"),
        "distil": ("student", "depth", "unroll_from", "validation_depth"),
        "sweep": ("decoding", "ranked_by", "reference"),
    },
    "export": {},
}
# Sections that options bring, whose constructors check what is added to them
BROUGHT: Mapping[str, Sequence[str]] = {
    "evaluate": ("metrics", "output_tv", "published", "study"),
    "train": (
        "batches", "caption_table", "feature_table", "images", "samples", "target", "token_table", "training_tokens",
    ),
    "export": (),
}  # fmt: skip
PARTS = {"study": "+experiment=…"}  # null unless chosen
# Groups of conf/ beside those of the command's own yaml that it reads; of train's experiments there are only users' own
ADDED: Mapping[str, Sequence[str]] = {
    "evaluate": ("method", "sweep", "experiment", "launch"),
    "train": ("captions", "features", "sweep", "experiment", "launch"),
    "export": (),
}


def check_settings(cfg: DictConfig) -> None:
    """Raises LanternError for a section or a switch that is neither, for a device without values, and for a ${…} that
    leads nowhere."""
    try:
        OmegaConf.to_container(cfg, resolve=True)
    except (InterpolationKeyError, UnsupportedInterpolationType) as error:
        said = str(error).splitlines()[0]
        raise LanternError(f"{error.full_key}: {said}; write \\${{…}} for a text that has one") from error
    for section, size in SECTIONS.items():
        if not isinstance(cfg[section], DictConfig):
            raise LanternError(f"{section}={cfg[section]} is no section; {section}.{size}=0 switches the part off")
    for switch in SWITCHES:
        if not isinstance(value := cfg.get(switch, False), bool):  # older records lack some
            raise LanternError(f"{switch}={value} is no switch; give true or false")
    for part, choice in PARTS.items():
        value = cfg.get(part)
        if value is not None and not (isinstance(value, DictConfig) and "_target_" in value):
            raise LanternError(f"{part}={value} is no {part}; choose one by {choice}")
    if cfg.device is None:
        raise LanternError("device=null is no device; give auto, cpu or cuda")
    if cfg.device == "meta":
        raise LanternError("device=meta computes no values; give device=cpu, or dry_run=true for the memory needed")


def check_added(overrides: Sequence[str], groups: Iterable[str], command: str = "evaluate") -> None:
    """Raises LanternError for a key or a group of conf/ that `+` adds and that nothing reads. groups: config groups;
    what is added to one of them is checked by its constructor, or is a group of the user's own."""
    groups = set(groups)
    for override in overrides:
        key = override.split("=")[0]
        if not key.startswith("+") or "@" in key or (key.startswith("++") and _exists(key[2:], command)):
            continue
        section, _, setting = key.lstrip("+").partition(".")
        if not setting and section not in ADDED[command] and (CONFIG_FOLDER / section).is_dir():
            raise LanternError(f"{override} adds a config group that {command}.py does not read; leave it out")
        if not (_is_read(section, setting, groups, command) if setting else section in groups):
            raise LanternError(
                f"{override} adds a setting that nothing reads; see {command}.py --help for those there are"
            )


def _is_read(section: str, setting: str, groups: Iterable[str], command: str) -> bool:
    """Whether a setting that is added to a section is read, or checked by a constructor."""
    if section in (own := OWN[command]):
        return setting.partition(".")[0] in own[section]
    named = {group.partition("@")[0].split("/")[0] for group in groups}
    packages = {group.partition("@")[2].split(".")[0] for group in groups}
    return section in {*BROUGHT[command], *named, *packages}


def tell_unused_tree(overrides: Sequence[str], cfg: DictConfig) -> None:
    """Warns of a tree that is given to a drafter which grows none, such as a window: it changes nothing, and a sweep
    over it measures one setting several times."""
    given = [override for override in overrides if override.split("=")[0].split(".")[0].lstrip("+") == "tree"]
    if not given or cfg.tree._target_.endswith("AutoTree"):  # which finds a window's shape as well
        return
    warn_unused_tree(given, instantiate(cfg.drafter))


def warn_unused_tree(given: Sequence[str], drafter: object) -> None:
    """Warns of the given settings of a tree if the drafter takes none. drafter: complete or a partial."""
    from lantern.pipeline import missing_arguments

    if given and "tree" not in missing_arguments(drafter):
        log.warning("%s changes nothing: this drafter grows no tree; its shape is set by drafter.…", ", ".join(given))


def _exists(key: str, command: str) -> bool:
    """Whether the command has this setting, which `++` then sets instead of adding it."""
    section, _, setting = key.rpartition(".")
    settings = OmegaConf.load(CONFIG_FOLDER / f"{command}.yaml")
    found = OmegaConf.select(settings, section) if section else settings
    return isinstance(found, DictConfig) and setting in found
