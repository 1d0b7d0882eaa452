"""Writes a drafter in another program's layout: python export.py drafter.checkpoint=… format=released to=my_drafter"""

import lantern  # noqa: F401  (first: see its docstring)

# isort: split
import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from lantern.cli.error_messages import in_one_sentence


@hydra.main(version_base="1.3", config_path="conf", config_name="export")
@in_one_sentence
def main(cfg: DictConfig) -> None:
    write = instantiate(cfg.format)
    weights = write(checkpoint=cfg.drafter.checkpoint, target=instantiate(cfg.model), folder=cfg.to)
    print(f"drafter written to {weights} and the config.json beside it")


if __name__ == "__main__":
    main()
