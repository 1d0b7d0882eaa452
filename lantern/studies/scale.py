"""python -m lantern.studies.scale writes the tables of docs/scale.md: what a drafter for a large target and the judging
of 30,000 prompts would take on many GPUs, on paper. Operations and bytes are counted from the models' shapes, tokens
per step are the embedded model's as measured, and the GPU is a data sheet with shares of it that are assumed."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from lantern.errors import LanternError
from lantern.evaluation.rows import Row, read_rows
from lantern.runtime.home import CHECKOUT
from lantern.studies.markdown import table_lines, write_block
from lantern.studies.scale_faults import judging_hours, training_hours

ITEM = 2  # bytes of a bfloat16 number
HOUR = 3600.0
GPUS = (8, 64)
GUIDANCE = 2  # rows of an image
IMAGES, EPOCHS, PASSES = 1_000_000, 2, 2  # of a drafter's training; passes: of the default recipe
PROMPTS, BATCH = 30_000, 32  # images judged a side; decoded at once on a GPU
IMAGES_A_STEP = 8  # of training, on each GPU
REFINED = 2  # passes of EAGLE's layer over the window: conf/drafter/refined_jacobi.yaml


@dataclass(frozen=True)
class Gpu:
    """A data sheet, and how much of it is assumed to be reached."""

    name: str = "H100 SXM"
    flops: float = 989e12  # dense bfloat16
    bandwidth: float = 3.35e12  # bytes/s of memory
    dollars: float = 2.5  # an hour
    trained: float = 0.4  # share of flops in training
    decoded: float = 0.6  # share of flops and bandwidth in a pass
    launch_s: float = 40e-6  # of one layer, recorded or not: what a pass takes beside bytes and flops
    link: float = 25e9  # bytes/s between GPUs, each way
    disk: float = 1e9  # bytes/s that 8 GPUs of one machine read together


@dataclass(frozen=True)
class Shape:
    """A target, counted without embeddings and text encoder."""

    name: str
    layers: int
    dim: int
    hidden: int
    codes: int  # rows of the head
    prefix: int
    tokens: int  # of an image

    @property
    def body(self) -> int:
        """Parameters of all layers."""
        return self.layers * self.layer

    @property
    def layer(self) -> int:
        """Of one layer, norms aside."""
        return 4 * self.dim**2 + 3 * self.dim * self.hidden

    @property
    def head(self) -> int:
        return self.codes * self.dim

    @property
    def drafter(self) -> int:
        """Trained parameters of EAGLE's layer."""
        return 2 * self.dim**2 + self.layer

    @property
    def positions(self) -> int:
        """Rows of an image that a layer computes, guidance included."""
        return GUIDANCE * (self.prefix + self.tokens)

    @property
    def slot_bytes(self) -> int:
        """Keys and values of one position of one row."""
        return 2 * self.layers * self.dim * ITEM


SHAPES = (
    Shape("LlamaGen-XL, 512 px", 36, 1280, 3584, 16384, 120, 1024),
    Shape("Anole-7B, 512 px", 32, 4096, 11008, 8192, 128, 1024),
    Shape("Lumina-mGPT-7B, 768 px", 32, 4096, 11008, 8192, 192, 2352),
)


def feature_bytes(shape: Shape) -> int:
    """Of one image on disk: features of all positions."""
    return shape.positions * shape.dim * ITEM


def extraction_flops(shape: Shape) -> float:
    """Of one image: the target's forward over all positions."""
    scores = (
        2 * shape.positions * (shape.prefix + shape.tokens) * shape.dim * shape.layers
    )  # causal: half of both products
    return 2 * shape.body * shape.positions + scores


def training_flops(shape: Shape) -> float:
    """Of one image and epoch: forward and backward of the drafter's passes, the head of both laws. The head is frozen:
    its backward has half of the arithmetic."""
    layer = 3 * 2 * shape.drafter * shape.positions * PASSES
    return layer + 2 * shape.head * shape.tokens * (1 + 2 * PASSES)


def train_drafter(shape: Shape, gpus: int, gpu: Gpu) -> Row:
    """Hours of a drafter's training from stored features, and from features computed again in every epoch."""
    rate = gpus * gpu.flops * gpu.trained
    extracted, arithmetic = (IMAGES * flops(shape) / rate / HOUR for flops in (extraction_flops, training_flops))
    read = IMAGES * feature_bytes(shape) / (gpu.disk * gpus / 8) / HOUR
    steps = ceil(IMAGES / (gpus * IMAGES_A_STEP))
    reduced = steps * 2 * (gpus - 1) / gpus * shape.drafter * ITEM / gpu.link / HOUR
    epoch = {"arithmetic": arithmetic, "disk": read, "network": reduced}
    bound = max(epoch, key=lambda name: epoch[name])
    stored = max(extracted, read) + EPOCHS * epoch[bound]  # what is written takes as long as what is read
    recomputed = EPOCHS * max(extracted + arithmetic, reduced)
    hours = min(stored, recomputed)
    return {
        "target": shape.name, "GPUs": gpus, "features, h": extracted, "an epoch, h": epoch[bound], "bound by": bound,
        "stored, TB": IMAGES * feature_bytes(shape) / 1e12, "stored, h": stored, "computed again, h": recomputed,
        "with faults, h": training_hours(hours, gpus), "dollars": hours * gpus * gpu.dollars,
    }  # fmt: skip


def pass_seconds(shape: Shape, nodes: int, images: int, gpu: Gpu) -> tuple[float, str]:
    """A pass of the target over trees of this many nodes, and what bounds it. Caches are half full."""
    rows = images * GUIDANCE
    cached = rows * shape.slot_bytes * (shape.prefix + shape.tokens / 2)
    parts = {
        "launches": shape.layers * gpu.launch_s,
        "weights": (shape.body + shape.head) * ITEM / (gpu.bandwidth * gpu.decoded),
        "caches": cached / (gpu.bandwidth * gpu.decoded),
        "arithmetic": 2 * (shape.body * rows * nodes + shape.head * images * nodes) / (gpu.flops * gpu.decoded),
    }
    return sum(parts.values()), max(parts, key=lambda name: parts[name])


def window_seconds(shape: Shape, nodes: int, images: int, gpu: Gpu) -> tuple[float, str]:
    """A round of the refined window of nodes - 1 drafts, and what bounds the target's pass: beside it EAGLE's layer and
    the head run REFINED times over the drafts. The layer's input map, a tenth of it, and the committed tokens that its
    first pass reads as well are left out."""
    target, bound = pass_seconds(shape, nodes, images, gpu)
    drafts, _ = pass_seconds(replace(shape, layers=1), nodes - 1, images, gpu)
    return target + REFINED * drafts, bound


def judge(shape: Shape, gpus: int, gpu: Gpu, measured: Row) -> Row:
    """Hours of PROMPTS images of plain decoding and as many of a lossless window, whose tokens per step were measured
    on the embedded model."""
    nodes, length = measured["num_nodes"], measured["tokens_per_step"]
    plain, bound = pass_seconds(shape, 1, BATCH, gpu)
    window, window_bound = window_seconds(shape, nodes, BATCH, gpu)
    seconds = {"AR": shape.tokens * plain, "window": shape.tokens / length * window}  # of BATCH images
    hours = {name: PROMPTS / BATCH * spent / gpus / HOUR for name, spent in seconds.items()}
    both = sum(hours.values())
    return {
        "target": shape.name, "GPUs": gpus, "AR, h": hours["AR"], "AR bound by": bound, "window, h": hours["window"],
        "window bound by": window_bound, "speed-up": hours["AR"] / hours["window"],
        "batch 1": pass_seconds(shape, 1, 1, gpu)[0] * length / window_seconds(shape, nodes, 1, gpu)[0],
        "with faults, h": judging_hours(2 * ceil(PROMPTS / BATCH), sum(seconds.values()) / 2, gpus),
        "dollars": both * gpus * gpu.dollars,
    }  # fmt: skip


def measured_window() -> Row:
    """The row of the refined window in the headline, with its nodes: drafts and root."""
    path = CHECKOUT / "docs" / "rows" / "headline.jsonl"
    found = [row for row in read_rows(path) if row["label"].startswith("`refined_jacobi`")]
    if not found:
        raise LanternError(f"{path} lacks the row of refined_jacobi; measure it with: make results TABLE=headline")
    return found[-1] | {"num_nodes": int(found[-1]["tree"].split("_")[-1]) + 1}


def tables(gpu: Gpu, measured: Row) -> Mapping[str, Sequence[Row]]:
    """By the names that the page has them under."""
    places = [(shape, gpus) for shape in SHAPES for gpus in GPUS]
    return {
        "training": [train_drafter(shape, gpus, gpu) for shape, gpus in places],
        "judging": [judge(shape, gpus, gpu, measured) for shape, gpus in places],
    }


def render(rows: Sequence[Row]) -> str:
    """Markdown."""
    cells = ([_short(value) for value in row.values()] for row in rows)
    return "\n".join(table_lines(list(rows[0]), cells)) + "\n"


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
    return str(value)


def main() -> None:
    """Writes the tables between their markers in docs/scale.md."""
    page = CHECKOUT / "docs" / "scale.md"
    for name, rows in tables(Gpu(), measured_window()).items():
        write_block(page, name, render(rows))


if __name__ == "__main__":
    try:
        main()
    except LanternError as error:
        sys.exit(f"error: {error}")
