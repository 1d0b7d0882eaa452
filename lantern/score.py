"""python -m lantern.score: the figures of images that exist, of any tool, or their layout for a benchmark."""

from collections.abc import Mapping, Sequence, Sized
from contextlib import closing
from math import isnan
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict

from lantern.cli.error_messages import command, starting_line
from lantern.errors import LanternError, check_whole
from lantern.runtime.files import alone_in, replace_text
from lantern.runtime.progress_line import ProgressLine

if TYPE_CHECKING:
    from torch import Tensor

    from lantern.data.image_sets import Images
    from lantern.metrics.metric import Metric

RESULTS = "results.json"
REFERENCES = "lantern.metrics.fidelity.StoredReferences"


@command("score")
def score(cfg: DictConfig) -> None:
    """Prints the figures and writes them to results.json in the run folder; with layout=… writes the images there."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    if cfg.size is not None:  # which leaves images as they are
        check_whole("", 1, size=cfg.size)
    starting = starting_line()  # stands until images are read
    from lantern.data.image_sets import open_images, write_layout
    from lantern.data.prompts import prompt_records
    from lantern.evaluation.rows import encode  # imports torch

    images = open_images(cfg.images, cfg.size)
    given = OmegaConf.to_container(cfg.prompts) if OmegaConf.is_list(cfg.prompts) else cfg.prompts
    folder_of_lists = Path(cfg.paths.root) / "data" / "prompts"
    prompts = [{"prompt": ""}] if given is None else prompt_records(given, folder_of_lists)
    numbers = prompt_numbers(len(images), len(prompts), cfg.images_per_prompt)
    unpaired = without_partner(images, len(prompts))
    if bool(cfg.layout) != bool(cfg.to):
        raise LanternError(f"layout={cfg.layout} and to={cfg.to}: give both, to write a layout, or neither, to score")
    if cfg.layout:
        with closing(ProgressLine("writing")) as line:
            write_layout(cfg.layout, cfg.to, Watched(images, line, str(cfg.layout)), prompts, numbers)
        starting.close()
        print("\n".join([f"{len(images)} images written to {cfg.to}", *(f"warning: {text}" for text in unpaired)]))
        return
    with alone_in(folder):
        texts = [str(prompts[number].get("prompt") or "") for number in numbers]
        found = figures(images, texts, _metrics(cfg))
        found["warnings"] += unpaired
        replace_text(folder / RESULTS, encode(found, indent=2) + "\n")
    starting.close()
    print(table(found))
    print(f"\n{folder / RESULTS}")


def prompt_numbers(num_images: int, num_prompts: int, images_per_prompt: int) -> list[int]:
    """Of each image: the prompts in turn, as evaluate.py makes them; or several images of a prompt one by one."""
    check_whole("", 1, images_per_prompt=images_per_prompt)
    wanted = num_prompts * images_per_prompt
    if wanted > num_images or (images_per_prompt > 1 and wanted < num_images):
        raise LanternError(
            f"{num_images} images are not those of {num_prompts} prompts with images_per_prompt={images_per_prompt}; "
            f"give the prompts of these images, in their order by name"
        )
    return [number // images_per_prompt % num_prompts for number in range(num_images)]


def without_partner(images: Sized, num_prompts: int) -> list[str]:
    """A warning where the images are no whole number of rounds of the prompts: one of them may be a stray picture."""
    if not (left := len(images) % num_prompts):
        return []
    first = len(images) - left
    name = images.files[first].name if hasattr(images, "files") else f"image {first + 1}"
    return [f"{len(images)} images are no multiple of {num_prompts} prompts: from {name!r} on, {left} have no partner"]


class Watched:
    """Images, of which a progress line shows how many the reader `name`, the number-th of `count`, has read."""

    def __init__(self, images: "Images", line: ProgressLine, name: str, number: int = 0, count: int = 1) -> None:
        self._images, self._line, self._name = images, line, name
        self._number, self._count, self._begun = number, count, monotonic()

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, which: slice) -> "Tensor":
        read = which.indices(len(self))[0]
        left_s = (monotonic() - self._begun) * (len(self) * (self._count - self._number) / read - 1) if read else None
        share = (self._number + read / len(self)) / self._count
        self._line.show(share, f"{self._name}, image {read + 1} of {len(self)}", left_s)
        return self._images[which]


def figures(images: "Images", prompts: Sequence[str], metrics: "Mapping[str, Metric]") -> dict[str, object]:
    """The values of all metrics with their protocols and warnings."""
    from lantern.metrics.metric import scored

    numbers = {name: number for number, name in enumerate(metrics)}
    with closing(ProgressLine("scoring")) as line:
        for metric in metrics.values():
            metric.prepare(prompts)
        values, protocols, warnings = scored(
            metrics, lambda name: Watched(images, line, name, numbers[name], len(metrics)), prompts
        )
    if not values:
        raise LanternError(f"metrics=[{', '.join(metrics)}] compares two methods; give others, such as fidelity")
    return {"num_images": len(images), **values, **protocols, "warnings": warnings}


def table(found: Mapping[str, object]) -> str:
    """A line a figure, with its 95 % bounds where it has some; then the warnings."""
    lines = [f"{found['num_images']} images"]
    for key, value in found.items():
        low, high = found.get(f"{key}_low"), found.get(f"{key}_high")
        if isinstance(value, float) and not key.endswith(("_low", "_high")):
            has_bounds = isinstance(low, float) and not isnan(low)  # few images or prompts have none
            lines.append(f"{key:24}{value:12.5g}" + (f"   {low:.5g} to {high:.5g}" if has_bounds else ""))
    return "\n".join([*lines, *(f"warning: {text}" for text in found["warnings"])])


def _metrics(cfg: DictConfig) -> "dict[str, Metric]":
    """Those chosen, with the references of the command in place of those in a metric's yaml."""
    chosen = {name: metric for name, metric in (cfg.get("metrics") or {}).items() if metric}
    if not chosen:
        raise LanternError("metrics=[] scores nothing; give metrics such as 'metrics=[fidelity_inception]'")
    comparing = [metric for metric in chosen.values() if "references" in metric]
    if cfg.references is not None:
        if not comparing:
            raise LanternError(f"references={cfg.references}: {', '.join(chosen)} have none; leave it out")
        for metric in comparing:
            with open_dict(metric):
                metric.references = {"_target_": REFERENCES, "source": str(cfg.references), "size": cfg.size}
    return {name: instantiate(metric) for name, metric in chosen.items()}


if __name__ == "__main__":
    score()
