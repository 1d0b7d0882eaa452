"""The command `python -m lantern.training.prepare`: makes the tables that a training with the same settings reads, and
stops. Any number of processes and machines fill one paths.cache_dir together."""

from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig

from lantern.cli.settings import check_added
from lantern.training.run.entry import command


@command
def prepare(cfg: DictConfig) -> None:
    """Computes the missing shards of both splits and prints their sizes."""
    from lantern.training.run.checks import check_captions, check_settings

    run = HydraConfig.get()
    groups = {*run.runtime.choices, "worker"}  # +worker numbers the points of a sweep
    check_added(cfg, run.overrides.task, groups, "train")
    check_settings(cfg)
    batches = instantiate(cfg.batches)
    if "target" in cfg:
        check_captions(cfg, instantiate(cfg.target), batches)
    for name in ("train", "validation"):
        print(f"{name}: {len(batches.splits.split(name)):,} items")


if __name__ == "__main__":
    prepare()
