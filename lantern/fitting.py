"""A drafter for a loaded model: trained as by train.py task=drafter_self, measured as by evaluate.py, in its memory."""

from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel

from lantern.acceleration import model_of
from lantern.api import Settings, check_texts, compose, overrides_of, wrap
from lantern.cli.composing import holding
from lantern.cli.run_setting import run_setting
from lantern.cli.sweep_callback import Points
from lantern.errors import check_least
from lantern.runtime.files import alone_in
from lantern.training.run.entry import carry_out
from lantern.training.run.interrupts import Interrupts

LEAST = 64  # images that are drawn for few prompts
TIMED = 4  # prompts of the row


def fit_drafter(
    model: PreTrainedModel, processor: object, prompts: Sequence[str], minutes: float = 30,
    folder: str | Path = "runs/drafter", *, name: str | None = None, settings: Settings = (), training: Settings = (),
) -> Path:  # fmt: skip
    """Trains a drafter and returns its folder, for accelerate's drafter=. The model draws an image for each prompt,
    LEAST at least, but for each tenth one, which validates; the training on them takes `minutes`; last the row of
    refined_jacobi is measured and printed. model: of transformers, or a pipeline of diffusers with one in it;
    processor, name, settings: as for wrap(); folder: of the run, which goes on if it was killed; training: settings of
    train.py, such as {"samples.num_images": 2000}. Raises LanternError for what the commands refuse."""
    check_texts("prompts", prompts)
    check_least("fit_drafter", 0.01, minutes=minutes)
    own, place = model_of(model), Path(folder).expanduser().resolve()
    place.mkdir(parents=True, exist_ok=True)
    wrapped, prompts = wrap(own, processor, name, settings), list(prompts)
    of_model = [*wrapped.overrides, f"device={own.device.type}", f"model.device={own.device}", "model.dtype=auto"]
    hours, seconds = divmod(max(1, int(60 * minutes)), 3600)
    of_training = {
        "task": "drafter_self", "data": "prompts", "data.prompts": prompts, "logger": "csv", "run_name": "drafter",
        "samples.num_images": max(LEAST, len(prompts) - len(prompts) // 10),
        "batches.splits.validation.num_images": min(64, max(8, len(prompts) // 10)),
        "trainer.max_time": f"{hours // 24:02d}:{hours % 24:02d}:{seconds // 60:02d}:{seconds % 60:02d}",
        "trainer.devices": 1 if own.device.index is None else [own.device.index],
        "trainer.default_root_dir": str(place),
    }  # fmt: skip
    train = compose([*of_model, *overrides_of(of_training), *overrides_of(training)], command="train")
    drafter = place / train.task_name
    of_row = {
        "+method": "refined_jacobi", "drafter.checkpoint": str(drafter), "prompts": (prompts[9::10] or prompts)[:TIMED],
        "speed.num_prompts": TIMED, "quality.num_images": 0, "tracking.mode": "disabled",
    }  # fmt: skip
    evaluate = compose([*of_model, *overrides_of(of_row)])
    guided = wrapped.target.configured(train.sampling.cfg_scale)
    with holding((train.target.config, guided), (evaluate.model, wrapped.target)):
        bar = Points()  # one over tables, training and validations, as train.py's
        bar.on_job_start()
        try:
            carry_out(train, place, Interrupts())
        finally:
            bar.on_multirun_end()
        with alone_in(place):
            run_setting(evaluate, wrapped.name, place / "evaluation", None, "refined_jacobi")
    return drafter
