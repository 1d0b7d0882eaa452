"""The command `python -m lantern.training.prepare`: makes the tables that a training with the same settings reads, and
stops. Any number of processes and machines fill one paths.cache_dir together."""

from hydra.utils import instantiate
from omegaconf import DictConfig

from lantern.cli.error_messages import command, starting_line


@command("train", "worker")  # +worker numbers the points of a sweep
def prepare(cfg: DictConfig) -> None:
    """Computes the missing shards of both splits and prints their sizes."""
    starting = starting_line()  # stands until tables are made
    from lantern.training.run.run_state import check_captions

    batches = instantiate(cfg.batches)
    if "target" in cfg:
        check_captions(cfg, instantiate(cfg.target), batches)
    for name in ("train", "validation"):
        size = len(batches.splits.split(name))
        starting.close()
        print(f"{name}: {size:,} items")


if __name__ == "__main__":
    prepare()
