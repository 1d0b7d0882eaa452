"""What --help prints of a command: the groups of settings it reads, each with its options, and its own settings with
their comments. Hydra's page lists every group of conf/ and the whole configuration, hundreds of lines."""

from collections.abc import Iterator, Mapping
from textwrap import fill

from omegaconf import OmegaConf

from lantern.cli.plain_settings import ADDED
from lantern.runtime.home import CONFIG_FOLDER

REPLACED, WITH_PLUS = "Groups with a default, as group=option:", "Groups to add, as +group=option:"
OWN = "Its own settings, as setting=value, with their defaults (conf/{}.yaml):"
REST = "--cfg job prints all settings, those of the chosen options included; their yaml in conf/ explains them."
HAVE_DEFAULTS, SWEEPS_OF_TRAIN = ("features",), ("recipe",)
DEEP = " " * 6
ABOUT: Mapping[str, Mapping[str, str]] = {
    "evaluate": {
        "model": "the target",
        "drafter": "what proposes tokens: EAGLE's layer, parallel heads, a window (jacobi, refined_jacobi), or none",
        "tree": "the shape of an EAGLE drafter's tree; auto finds the fastest tree or window on this device",
        "acceptance": "which tokens are accepted: exact, or a lossy rule such as LANTERN",
        "verification": "how a tree is judged; auto is what the rule's paper does",
        "sampling": "temperature, top-k, top-p, guidance scale",
        "metrics": "what judges the images; a list: metrics=[fidelity,pairs]",
        "budget": "how much quality the fastest setting of a sweep may lose",
        "tracking": "Weights & Biases; tracking.mode=disabled switches it off",
        "paths": "where weights, caches and runs are",
        "method": "a method of the field by name: drafter, tree, rule and verification in one",
        "sweep": "many settings, one after the other, and a report that compares them",
        "experiment": "a measurement of the engine, or a search, in place of an evaluation",
        "launch": "several settings or shards at once: by joblib or Slurm",
    },
    "train": {
        "task": "what is trained: a drafter for a target, or target, tokenizer and critic themselves",
        "model": "the frozen target",
        "drafter": "the drafter's architecture, for task=drafter",
        "recipe": "what task=drafter minimises, pass by pass",
        "select_by": "the figure whose best weights are exported",
        "data": "the images: rendered scenes, or your own with their captions",
        "features": "the target's features: stored, or computed at each step",
        "sampling": "the target's temperature, top-k, top-p and guidance scale",
        "trainer": "Lightning's trainer: limits of time and steps, devices, precision",
        "callbacks": "validation, checkpoints, schedule; sharded_target spreads a large target over GPUs",
        "logger": "CSV and Weights & Biases; logger.wandb=null switches the latter off",
        "paths": "where weights, caches and runs are",
        "captions": "where the captions of a large data set are kept",
        "sweep": "all recipes one after the other, decoded with, and a report that compares them",
        "launch": "several settings at once: by joblib or Slurm",
    },
    "export": {
        "model": "the target, whose embedding is exported with the drafter",
        "drafter": "the drafter; drafter.checkpoint=… is a folder or a name on the Hub",
        "format": "whose layout is written: ours, or that of LANTERN's released code",
        "paths": "where weights are",
    },
}


def help_page(command: str) -> str:
    """What `command` does, as the head of its yaml says, its groups of settings, and its own settings."""
    head, own = _head_and_settings(command)
    page = "\n\n".join([head, *_groups(command), OWN.format(command), own, REST])
    return page.replace("$", "$$")  # Hydra reads it as a string.Template


def register() -> None:
    """Lets conf/ name the page: hydra.help.template."""
    OmegaConf.register_new_resolver("lantern_help", help_page, replace=True)


def _head_and_settings(command: str) -> tuple[str, str]:
    """The comment at the top of the command's yaml, and what stands between its defaults and `hydra`."""
    defaults, _, rest = (CONFIG_FOLDER / f"{command}.yaml").read_text().partition("\n\n")
    head = [line.removeprefix("# ") for line in defaults.splitlines() if line.startswith("#")]
    return "\n".join(head), rest.split("\n\nhydra:")[0]


def _groups(command: str) -> Iterator[str]:
    described = ABOUT[command]
    added = [name for name in described if name in ADDED[command] and name not in HAVE_DEFAULTS]
    yield "\n".join([REPLACED, *(_group(command, name) for name in described if name not in added)])
    if added:
        yield "\n".join([WITH_PLUS, *(_group(command, name) for name in added)])


def _group(command: str, name: str) -> str:
    line, options = f"  {name}: {ABOUT[command][name]}", ", ".join(_options(command, name))
    return f"{line}\n{fill(options, 118, initial_indent=DEEP, subsequent_indent=DEEP)}"


def _options(command: str, group: str) -> list[str]:
    folder = "drafter/training" if group == "drafter" and command != "evaluate" else group
    names = sorted(file.stem for file in (CONFIG_FOLDER / folder).glob("*.yaml"))
    return [name for name in names if (name in SWEEPS_OF_TRAIN) == (command == "train")] if group == "sweep" else names
